package ai.mobileft.demo;

import ai.mobileft.app.AppModel;
import ai.mobileft.app.ExampleForm;
import ai.mobileft.app.Trainings;
import android.Manifest;
import android.app.Activity;
import android.app.AlertDialog;
import android.content.ActivityNotFoundException;
import android.content.Intent;
import android.net.Uri;
import android.os.Build;
import android.os.Bundle;
import android.view.View;
import android.widget.Button;
import android.widget.CompoundButton;
import android.widget.EditText;
import android.widget.SeekBar;
import android.widget.TextView;
import java.io.File;

/** The only window. Connects views to the {@link AppModel}, and shows its whole state after each change. */
public final class MainActivity extends Activity {
  private static final int COPY_BUNDLE = 1;
  private static final int READ_EXAMPLES = 2;
  private static final int EXPORT = 3;

  private final OnMain show = new OnMain(50, this::show);
  private AppModel model;
  private EditText question;
  private EditText answer;
  private EditText steps;
  private EditText chatQuestion;
  private SeekBar budget;
  private LossChartView chart;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.main);
    model = DemoApplication.model(this);
    question = findViewById(R.id.question);
    answer = findViewById(R.id.answer);
    steps = findViewById(R.id.steps);
    chatQuestion = findViewById(R.id.chat_question);
    budget = findViewById(R.id.budget);
    chart = findViewById(R.id.chart);
    if (saved == null) steps.setText(String.valueOf(model.budget().getSteps()));
    budget.setProgress(model.budget().getPosition());
    budget.setOnSeekBarChangeListener(new Slider());
    steps.setOnFocusChangeListener((view, focused) -> setBudget());
    steps.setOnEditorActionListener(
        (view, action, event) -> {
          setBudget();
          return false; // so that the keyboard is closed, too
        });

    onClick(R.id.choose_bundle, () -> pick(new Intent(Intent.ACTION_OPEN_DOCUMENT_TREE), COPY_BUNDLE));
    onClick(R.id.add_example, this::addExample);
    onClick(R.id.import_examples, () -> pick(document(Intent.ACTION_OPEN_DOCUMENT, "*/*"), READ_EXAMPLES));
    onClick(R.id.begin, this::begin);
    onClick(R.id.go_on, () -> train(true));
    onClick(R.id.stop, () -> model.trainings().stop());
    onClick(R.id.ask, () -> model.chat().ask(chatQuestion.getText().toString()));
    onClick(R.id.stop_chat, () -> model.chat().stop());
    onClick(
        R.id.export,
        () ->
            pick(
                document(Intent.ACTION_CREATE_DOCUMENT, "application/zip")
                    .putExtra(Intent.EXTRA_TITLE, "adapter.zip"),
                EXPORT));
  }

  @Override
  protected void onStart() {
    super.onStart();
    CompoundButton nightly = findViewById(R.id.nightly);
    nightly.setOnCheckedChangeListener(null); // this change is not made by the user
    nightly.setChecked(model.isNightly());
    nightly.setOnCheckedChangeListener((button, on) -> setNightly(on));
    model.board().observe(show);
    model.look();
    show();
  }

  @Override
  protected void onResume() {
    super.onResume();
    if (model.trainings().isInterrupted()) TrainingService.goOn(this);
  }

  @Override
  protected void onStop() {
    model.board().forget(show);
    super.onStop();
  }

  @Override
  protected void onDestroy() {
    show.cancel();
    super.onDestroy();
  }

  @Override
  protected void onActivityResult(int request, int result, Intent data) {
    if (result != RESULT_OK || data == null || data.getData() == null) return;
    Uri uri = data.getData();
    switch (request) {
      case COPY_BUNDLE:
        model.bundle().copy(Documents.folder(getContentResolver(), uri));
        break;
      case READ_EXAMPLES:
        model.examples().read(Documents.input(getContentResolver(), uri));
        break;
      case EXPORT:
        model.export(Documents.output(getContentResolver(), uri));
        break;
      default:
        throw new AssertionError(request);
    }
  }

  private void pick(Intent intent, int request) {
    try {
      startActivityForResult(intent, request);
    } catch (ActivityNotFoundException e) { // on a device without a file manager, such as a television
      model.board().say(getString(R.string.no_picker));
    }
  }

  private static Intent document(String action, String type) {
    return new Intent(action).addCategory(Intent.CATEGORY_OPENABLE).setType(type);
  }

  private void addExample() {
    ExampleForm form = new ExampleForm(question.getText().toString(), answer.getText().toString());
    model.examples().add(form, () -> runOnUiThread(this::clearExample));
  }

  private void clearExample() {
    question.setText("");
    answer.setText("");
    question.requestFocus();
  }

  private void begin() {
    if (!model.trainings().hasAdapter()) {
      train(false);
      return;
    }
    new AlertDialog.Builder(this)
        .setMessage(R.string.replace_adapter)
        .setPositiveButton(R.string.begin, (dialog, which) -> train(false))
        .setNegativeButton(android.R.string.cancel, null)
        .show();
  }

  private void train(boolean goOn) {
    if (Build.VERSION.SDK_INT >= 33) { // without the permission, training works but shows no notification
      requestPermissions(new String[] {Manifest.permission.POST_NOTIFICATIONS}, 0);
    }
    if (goOn) {
      TrainingService.goOn(this);
    } else {
      setBudget();
      TrainingService.begin(this);
    }
  }

  private void setNightly(boolean on) {
    model.setNightly(on);
    NightlyJob.plan(this, on);
  }

  private void setBudget() {
    int wanted;
    try {
      wanted = Integer.parseInt(steps.getText().toString());
    } catch (NumberFormatException e) { // empty text
      wanted = model.budget().getSteps();
    }
    if (wanted == model.budget().getSteps() && budget.getProgress() == model.budget().getPosition()) return;
    model.budget().set(wanted, budget.getProgress());
  }

  private void show() {
    Trainings trainings = model.trainings();
    boolean on = trainings.isOn();
    boolean copying = model.bundle().getPercent() >= 0;
    File folder = model.bundle().getFolder();

    text(R.id.message, model.board().getMessage());
    show(R.id.message, !model.board().getMessage().isEmpty());
    if (copying) {
      text(R.id.bundle, getString(R.string.copying, model.bundle().getPercent()));
    } else {
      text(R.id.bundle, folder == null ? getString(R.string.no_bundle) : folder.getPath());
    }
    enable(R.id.choose_bundle, !on && !copying);

    int rows = (int) model.examples().getRows();
    text(R.id.rows, getResources().getQuantityString(R.plurals.examples, rows, rows));
    enable(R.id.add_example, folder != null);
    enable(R.id.import_examples, folder != null);

    enable(R.id.budget, !on);
    enable(R.id.steps, !on);
    text(R.id.plan, model.budget().getText());

    text(R.id.status, trainings.getStatus());
    text(R.id.night, trainings.getNightStatus());
    show(R.id.night, !trainings.getNightStatus().isEmpty());
    chart.show(trainings.getChart());
    show(R.id.begin, !on);
    enable(R.id.begin, folder != null && rows > 0 && !copying);
    show(R.id.go_on, trainings.isUnfinished());
    show(R.id.stop, on);

    boolean asking = model.chat().isOn();
    enable(R.id.ask, folder != null && !asking);
    show(R.id.stop_chat, asking);
    text(R.id.before, model.chat().getBefore());
    text(R.id.after, model.chat().getAfter());
    enable(R.id.export, trainings.hasAdapter());
  }

  private void text(int id, String text) {
    TextView view = findViewById(id);
    if (!text.contentEquals(view.getText())) view.setText(text); // otherwise, a screen reader would read it again
  }

  private void enable(int id, boolean enabled) {
    findViewById(id).setEnabled(enabled);
  }

  private void show(int id, boolean visible) {
    findViewById(id).setVisibility(visible ? View.VISIBLE : View.GONE);
  }

  private void onClick(int id, Runnable action) {
    Button button = findViewById(id);
    button.setOnClickListener(view -> action.run());
  }

  /** Receives the final position after dragging, or after a key. */
  private final class Slider implements SeekBar.OnSeekBarChangeListener {
    private boolean dragged = false;

    @Override
    public void onProgressChanged(SeekBar bar, int position, boolean byUser) {
      if (byUser && !dragged) setBudget();
    }

    @Override
    public void onStartTrackingTouch(SeekBar bar) {
      dragged = true;
    }

    @Override
    public void onStopTrackingTouch(SeekBar bar) {
      dragged = false;
      setBudget();
    }
  }
}
