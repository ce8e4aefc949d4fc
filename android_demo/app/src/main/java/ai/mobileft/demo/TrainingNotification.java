package ai.mobileft.demo;

import ai.mobileft.app.Trainings;
import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.PendingIntent;
import android.content.Context;
import android.content.Intent;
import android.graphics.drawable.Icon;

/** The notifications of a training. */
final class TrainingNotification {
  /** Ids of the notification that a foreground service must show, and of the one that stays at the end. */
  static final int ON = 1;

  static final int OVER = 2;

  private static final String CHANNEL = "training";

  private TrainingNotification() {}

  static void createChannel(Context context) {
    String name = context.getString(R.string.training);
    NotificationChannel channel = new NotificationChannel(CHANNEL, name, NotificationManager.IMPORTANCE_LOW);
    context.getSystemService(NotificationManager.class).createNotificationChannel(channel);
  }

  /** The notification of a running training. */
  static Notification on(Context context, Trainings trainings) {
    PendingIntent stop =
        PendingIntent.getService(context, 0, TrainingService.stop(context), PendingIntent.FLAG_IMMUTABLE);
    Icon icon = Icon.createWithResource(context, R.drawable.ic_training);
    return builder(context, trainings)
        .setOngoing(true)
        .setProgress(trainings.getSteps(), (int) trainings.getStep(), trainings.getSteps() == 0)
        .addAction(new Notification.Action.Builder(icon, context.getString(R.string.stop), stop).build())
        .build();
  }

  /** The notification of a finished training. */
  static Notification over(Context context, Trainings trainings) {
    return builder(context, trainings).setAutoCancel(true).build();
  }

  private static Notification.Builder builder(Context context, Trainings trainings) {
    Intent open = new Intent(context, MainActivity.class).addFlags(Intent.FLAG_ACTIVITY_SINGLE_TOP);
    return new Notification.Builder(context, CHANNEL)
        .setSmallIcon(R.drawable.ic_training)
        .setContentTitle(context.getString(R.string.training))
        .setContentText(trainings.getStatus())
        .setOnlyAlertOnce(true)
        .setContentIntent(PendingIntent.getActivity(context, 0, open, PendingIntent.FLAG_IMMUTABLE));
  }
}
