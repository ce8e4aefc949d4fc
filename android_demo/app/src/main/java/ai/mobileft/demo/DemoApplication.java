package ai.mobileft.demo;

import ai.mobileft.app.AppFiles;
import ai.mobileft.app.AppModel;
import android.app.ActivityManager;
import android.app.Application;
import android.content.Context;
import java.io.IOException;
import java.io.UncheckedIOException;

/** Has the process's only {@link AppModel}. */
public final class DemoApplication extends Application {
  private AppModel model;

  static AppModel model(Context context) {
    return ((DemoApplication) context.getApplicationContext()).model;
  }

  @Override
  public void onCreate() {
    super.onCreate();
    TrainingNotification.createChannel(this);
    ActivityManager.MemoryInfo memory = new ActivityManager.MemoryInfo();
    getSystemService(ActivityManager.class).getMemoryInfo(memory);
    try {
      model = new AppModel(new AppFiles(getFilesDir(), getExternalFilesDir("bundle")), memory.totalMem / 2);
    } catch (IOException e) {
      throw new UncheckedIOException(e); // the app cannot work without its own files
    }
    NightlyJob.keepPlanned(this);
  }
}
