package ai.mobileft.demo;

import ai.mobileft.app.AppModel;
import ai.mobileft.app.Trainings;
import android.app.NotificationManager;
import android.app.Service;
import android.content.Context;
import android.content.Intent;
import android.os.IBinder;
import android.os.PowerManager;
import android.util.Log;

/**
 * Keeps the process alive during a training that the user started: in the foreground, and awake while it computes. If
 * the process dies anyway, Android restarts this service, and the training resumes.
 */
public final class TrainingService extends Service {
  private static final String BEGIN = "ai.mobileft.demo.BEGIN";
  private static final String GO_ON = "ai.mobileft.demo.GO_ON";
  private static final String STOP = "ai.mobileft.demo.STOP";

  /** Runs in any thread and at once, so that the device does not sleep between a training's decision and its step. */
  private final Runnable keepAwake = this::keepAwake;

  private final OnMain show = new OnMain(1000, this::show);
  private AppModel model;
  private DeviceWatcher watcher;
  private PowerManager.WakeLock wakeLock; // null when destroyed; guarded by this
  private int lastStart;

  /** Starts a training. This and the next method can be called only while the app is in the foreground. */
  static void begin(Context context) {
    context.startForegroundService(intent(context, BEGIN));
  }

  static void goOn(Context context) {
    context.startForegroundService(intent(context, GO_ON));
  }

  static Intent stop(Context context) {
    return intent(context, STOP);
  }

  private static Intent intent(Context context, String action) {
    return new Intent(context, TrainingService.class).setAction(action);
  }

  @Override
  public void onCreate() {
    super.onCreate();
    model = DemoApplication.model(this);
    PowerManager power = getSystemService(PowerManager.class);
    wakeLock = power.newWakeLock(PowerManager.PARTIAL_WAKE_LOCK, "mobileft:training");
    wakeLock.setReferenceCounted(false);
    watcher = new DeviceWatcher(this, model.trainings()::update);
    watcher.start();
    model.board().observe(keepAwake);
    model.board().observe(show);
  }

  @Override
  public int onStartCommand(Intent intent, int flags, int startId) {
    lastStart = startId;
    if (!showInForeground()) return START_NOT_STICKY;
    getSystemService(NotificationManager.class).cancel(TrainingNotification.OVER);
    Trainings trainings = model.trainings();
    String action = intent == null ? "" : intent.getAction(); // null: the process died and was restarted
    if (BEGIN.equals(action)) trainings.begin();
    if (GO_ON.equals(action) || intent == null && trainings.isInterrupted()) trainings.goOn();
    if (STOP.equals(action)) trainings.stop();
    show.run(); // ends the service if there is nothing to do
    return START_STICKY;
  }

  /** Must be called first, whatever the reason of the start. */
  private boolean showInForeground() {
    try {
      startForeground(TrainingNotification.ON, TrainingNotification.on(this, model.trainings()));
      return true;
    } catch (IllegalStateException e) {
      // Not allowed since Android 12 if the process died in the background. The training resumes when the user opens
      // the app, or at night.
      Log.w("TrainingService", e);
      stopSelf();
      return false;
    }
  }

  @Override
  public IBinder onBind(Intent intent) {
    return null;
  }

  @Override
  public void onDestroy() {
    model.board().forget(show);
    model.board().forget(keepAwake);
    show.cancel();
    watcher.stop();
    model.trainings().interrupt(); // no effect unless the system ended this service
    synchronized (this) {
      wakeLock.release();
      wakeLock = null;
    }
    super.onDestroy();
  }

  private synchronized void keepAwake() {
    if (wakeLock == null) return;
    if (!model.trainings().isRunning()) {
      wakeLock.release();
    } else if (!wakeLock.isHeld()) {
      wakeLock.acquire();
    }
  }

  private void show() {
    Trainings trainings = model.trainings();
    NotificationManager notifications = getSystemService(NotificationManager.class);
    if (trainings.isOn()) {
      notifications.notify(TrainingNotification.ON, TrainingNotification.on(this, trainings));
      return;
    }
    stopForeground(STOP_FOREGROUND_REMOVE);
    notifications.notify(TrainingNotification.OVER, TrainingNotification.over(this, trainings));
    stopSelf(lastStart); // no effect if the user has just started another training
  }
}
