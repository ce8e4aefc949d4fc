package ai.mobileft.demo;

import ai.mobileft.app.LossChart;
import android.content.Context;
import android.content.res.TypedArray;
import android.graphics.Canvas;
import android.graphics.Paint;
import android.graphics.Path;
import android.util.AttributeSet;
import android.util.TypedValue;
import android.view.View;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.function.ToDoubleFunction;

/** Draws a {@link LossChart}: the loss of each step, the smoothed loss, and the memory, each with its own range. */
public final class LossChartView extends View {
  private static final float LINE_DP = 2;
  private static final float TEXT_SP = 12;
  private static final int FAINT = 0x60;

  private final Paint loss = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint smoothed = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint memory = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint text = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Path path = new Path();
  private List<LossChart.Point> points = Collections.emptyList();
  private double leastLoss;
  private double mostLoss;
  private double mostMemory;
  private String losses = "";
  private String bytes = "";

  public LossChartView(Context context, AttributeSet attributes) {
    super(context, attributes);
    int accent = color(context, android.R.attr.colorAccent);
    int quiet = color(context, android.R.attr.textColorSecondary);
    float width = TypedValue.applyDimension(TypedValue.COMPLEX_UNIT_DIP, LINE_DP, getResources().getDisplayMetrics());
    line(smoothed, accent, width);
    line(loss, accent, width / 2);
    loss.setAlpha(FAINT);
    line(memory, quiet, width / 2);
    text.setColor(quiet);
    text.setTextSize(
        TypedValue.applyDimension(TypedValue.COMPLEX_UNIT_SP, TEXT_SP, getResources().getDisplayMetrics()));
  }

  /** Reads the current content of the chart. */
  void show(LossChart chart) {
    points = chart.getPoints();
    leastLoss = chart.getLeastLoss();
    mostLoss = chart.getMostLoss();
    mostMemory = chart.getMostMemoryBytes();
    if (points.isEmpty()) {
      setContentDescription(getContext().getString(R.string.chart_empty));
    } else {
      long last = points.get(points.size() - 1).getStep();
      losses = getContext().getString(R.string.chart_loss, number(leastLoss), number(mostLoss));
      bytes = getContext().getString(R.string.chart_memory, Math.round(mostMemory / 1e6));
      setContentDescription(getContext().getString(R.string.chart_description, last, losses, bytes));
    }
    invalidate();
  }

  @Override
  protected void onDraw(Canvas canvas) {
    super.onDraw(canvas);
    if (points.isEmpty()) return;
    draw(canvas, memory, LossChart.Point::getMemoryBytes, 0, mostMemory);
    draw(canvas, loss, LossChart.Point::getLoss, leastLoss, mostLoss);
    draw(canvas, smoothed, LossChart.Point::getSmoothedLoss, leastLoss, mostLoss);
    float bottom = getHeight() - text.descent();
    canvas.drawText(losses, 0, bottom, text);
    canvas.drawText(bytes, getWidth() - text.measureText(bytes), bottom, text);
  }

  /** Uses the whole width, and the height above the line of text. */
  private void draw(
      Canvas canvas, Paint paint, ToDoubleFunction<LossChart.Point> value, double least, double most) {
    float top = paint.getStrokeWidth();
    float height = getHeight() - text.getFontSpacing() - 2 * top;
    double firstStep = points.get(0).getStep();
    double steps = Math.max(1, points.get(points.size() - 1).getStep() - firstStep);
    double range = Math.max(most - least, 1e-9);
    path.rewind();
    for (LossChart.Point point : points) {
      float x = (float) ((point.getStep() - firstStep) / steps * getWidth());
      double share = Math.max(0, Math.min(1, (value.applyAsDouble(point) - least) / range));
      float y = (float) (top + height * (1 - share));
      if (path.isEmpty()) path.moveTo(x, y);
      path.lineTo(x, y);
    }
    canvas.drawPath(path, paint);
  }

  private static void line(Paint paint, int color, float width) {
    paint.setStyle(Paint.Style.STROKE);
    paint.setColor(color);
    paint.setStrokeWidth(width);
  }

  private static String number(double value) {
    return String.format(Locale.getDefault(), "%.3g", value);
  }

  private static int color(Context context, int attribute) {
    TypedArray values = context.obtainStyledAttributes(new int[] {attribute});
    int color = values.getColor(0, 0);
    values.recycle();
    return color;
  }
}
