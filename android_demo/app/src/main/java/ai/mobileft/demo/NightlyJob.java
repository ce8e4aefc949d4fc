package ai.mobileft.demo;

import ai.mobileft.app.AppModel;
import ai.mobileft.app.DeviceState;
import ai.mobileft.app.Trainings;
import android.app.job.JobInfo;
import android.app.job.JobParameters;
import android.app.job.JobScheduler;
import android.app.job.JobService;
import android.content.ComponentName;
import android.content.Context;
import java.util.concurrent.TimeUnit;

/**
 * Trains at night, while the device charges and nobody uses it. The system ends a job after some minutes; the training
 * is saved then, and goes on in the next one, as soon as the system allows it.
 */
public final class NightlyJob extends JobService {
  private static final int ID = 1;

  private final OnMain finishIfOver = new OnMain(50, this::finishIfOver);
  private JobParameters job; // null: none is running
  private AppModel model;
  private DeviceWatcher watcher;

  /** Turns nightly training on or off. */
  static void plan(Context context, boolean on) {
    if (on) {
      plan(context, Trainings.NIGHT.minutesUntilOpen(DeviceWatcher.minuteOfDay()));
    } else {
      scheduler(context).cancel(ID);
    }
  }

  /** The system forgets jobs of an app that the user forced to stop. */
  static void keepPlanned(Context context) {
    boolean on = DemoApplication.model(context).isNightly();
    if (on && scheduler(context).getPendingJob(ID) == null) plan(context, true);
  }

  private static void plan(Context context, int minutes) {
    JobInfo info =
        new JobInfo.Builder(ID, new ComponentName(context, NightlyJob.class))
            .setRequiresCharging(true)
            .setRequiresDeviceIdle(true)
            .setPersisted(true)
            .setMinimumLatency(TimeUnit.MINUTES.toMillis(minutes))
            .build();
    scheduler(context).schedule(info);
  }

  private static JobScheduler scheduler(Context context) {
    return context.getSystemService(JobScheduler.class);
  }

  @Override
  public boolean onStartJob(JobParameters parameters) {
    job = parameters;
    model = DemoApplication.model(this);
    watcher = new DeviceWatcher(this, this::update);
    watcher.start();
    model.board().observe(finishIfOver);
    model.trainings().trainAtNight(); // does nothing where the user's own training is on
    finishIfOver.run();
    return true;
  }

  /** Charger or idleness are gone, or the time is up. The step in progress is saved before long. */
  @Override
  public boolean onStopJob(JobParameters parameters) {
    if (job != null) end();
    return true; // to come again as soon as it may
  }

  private void update(DeviceState device) {
    model.trainings().update(device);
    if (!isNight()) finishIfOver.run();
  }

  private void finishIfOver() {
    if (job == null || model.trainings().isOnAtNight() && isNight()) return;
    JobParameters finished = job;
    end();
    jobFinished(finished, false); // before the next line, since a job that is planned anew is stopped
    if (model.isNightly()) plan(this, Trainings.NIGHT.minutesUntilNextOpening(DeviceWatcher.minuteOfDay()));
  }

  private void end() {
    job = null;
    model.board().forget(finishIfOver);
    watcher.stop();
    if (model.trainings().isOnAtNight()) model.trainings().interrupt();
  }

  private static boolean isNight() {
    return Trainings.NIGHT.contains(DeviceWatcher.minuteOfDay());
  }
}
