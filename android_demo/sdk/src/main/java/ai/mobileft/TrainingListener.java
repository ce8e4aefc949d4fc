package ai.mobileft;

/** Hears what happens in a training, in the thread that trains. {@link Trainer#cancel()} ends it from here. */
public interface TrainingListener {
  void onEvent(TrainingEvent event);
}
