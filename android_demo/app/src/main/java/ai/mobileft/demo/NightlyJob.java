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
 * Learns from new examples at night, while the device is charging and not in use. The system ends a job after some
 * minutes, and a night takes fewer. A night that is ended changes nothing, and begins again in the next job.
 */
public final class NightlyJob extends JobService {
  private static final int ID = 1;

  private final OnMain finishIfOver = new OnMain(50, this::finishIfOver);
  private JobParameters job; // null: not running
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

  /** The system removes the jobs of an app that the user forced to stop. */
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
    model.trainings().learnAtNight(); // does nothing if the user's own training is running
    finishIfOver.run();
    return true;
  }

  /** The device is no longer charging or idle, or the time is up. The night ends after the current step. */
  @Override
  public boolean onStopJob(JobParameters parameters) {
    if (job != null) end();
    return true; // reschedule as soon as possible
  }

  private void update(DeviceState device) {
    model.trainings().update(device);
    if (!isNight()) finishIfOver.run();
  }

  private void finishIfOver() {
    if (job == null || model.trainings().isOnAtNight() && isNight()) return;
    JobParameters finished = job;
    end();
    jobFinished(finished, false); // before the next line, because rescheduling stops a running job
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
