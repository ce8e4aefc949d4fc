package ai.mobileft;

/** Receives the events of a training, in the thread that trains. {@link Trainer#cancel()} may be called from here. */
public interface TrainingListener {
  void onEvent(TrainingEvent event);
}
