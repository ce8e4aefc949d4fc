#ifndef MOBILE_FT_H
#define MOBILE_FT_H

/*
 * C API of the mobile-ft runtime: fine-tune, evaluate and generate from a training bundle
 * (docs/reference/bundle_format.md), for JNI and other languages. It trains exactly as `mobile-ft` and `mft-run` do.
 *
 *   mft_options* options = mft_train_options_new();
 *   mft_options_set(options, "steps", "200");
 *   mft_options_set(options, "budget", "512MB");
 *   mft_training* training = NULL;
 *   const mft_training_files files = {"smol.bundle", "train.tokens", NULL, NULL, "out", 0};
 *   if (mft_training_open(&files, options, &training) != MFT_OK ||
 *       mft_training_run(training, on_event, NULL) != MFT_OK) {
 *     fprintf(stderr, "%s\n", mft_last_error());
 *   }
 *   mft_training_close(training);
 *   mft_options_free(options);
 *
 * Errors: functions that can fail return a status, and mft_last_error() returns one line that describes the failure.
 * Results are written only if the status is MFT_OK, and a handle that could not be opened is NULL. No C++ exception
 * leaves the library.
 *
 * Ownership: the caller owns a handle and passes it to the matching _close or _free function once. Closing NULL does
 * nothing. The library keeps no pointer to a caller's string or array after a call returns. Strings are UTF-8 and end
 * with a zero byte. A path must not be NULL or empty unless its description allows it.
 *
 * Threads: each call may come from a different thread. A training, a bundle and a dataset take one call at a time. A
 * second call on the same handle returns MFT_ERROR_BUSY at once, also if it comes from a callback of the first. Calls
 * on different handles may run at the same time; they share the cores. mft_training_cancel(), mft_bundle_cancel(),
 * mft_learner_cancel(), mft_dataset_rows(), mft_bundle_vocab_size() and mft_bundle_max_seq_len() are never busy.
 * Tokenizers may be used by several threads at a time, and options by one. A handle must not be closed while a call on
 * it is in progress.
 *
 * Units: memory in bytes, lengths in tokens.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MFT_API __attribute__((visibility("default")))
#else
#define MFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mft_status {
  MFT_OK = 0,
  MFT_ERROR_ARGUMENT = 1, /* a NULL or an empty path where none is allowed, or an unknown option */
  MFT_ERROR_FAILED = 2,   /* a problem with a file, an option's value or memory: see mft_last_error() */
  MFT_STOPPED = 3,        /* ended early with a checkpoint, can be resumed; mft_last_error() gives the reason */
  MFT_ERROR_BUSY = 4      /* another call on this handle is in progress */
} mft_status;

/* The library's version, such as "0.1.0". */
MFT_API const char* mft_version(void);

/* One line about this thread's latest failed call, or an empty text. Valid until the thread's next failure. */
MFT_API const char* mft_last_error(void);

/* ---- Options ---- */

/* Options by name, with their values as text, as in docs/reference/options.md; names have underscores. They are also
 * listed by `mft-run options`. */
typedef struct mft_options mft_options;

/* Creates options with their default values. Returns NULL if there is no memory. */
MFT_API mft_options* mft_train_options_new(void);
MFT_API mft_options* mft_generate_options_new(void);
MFT_API mft_options* mft_learn_options_new(void);
MFT_API void mft_options_free(mft_options* options);

/* Sets an option, such as "lr" to "1e-3". Fails if the option does not exist or the value is not of its type. Ranges
 * are checked by the calls that use the options. */
MFT_API mft_status mft_options_set(mft_options* options, const char* name, const char* value);

/* Returns an option's value as text, or NULL if there is none. Valid until the next call with these options. */
MFT_API const char* mft_options_get(mft_options* options, const char* name);

/* ---- Events ---- */

/*
 * Receives the events of a call, in the thread that made the call. `event` is a JSON object (docs/reference/events.md)
 * whose "event" names its kind: "plan", "step", "eval", "saved", "stopped", "done". It is valid until the callback
 * returns. Return nonzero to end a run after the current step, with a checkpoint. Must not throw.
 */
typedef int (*mft_event_callback)(const char* event, void* user_data);

/* ---- Trust ---- */

/* After this call, this process opens only bundles that `mobile-ft export --sign` signed with this key. `pem` is the
 * text of the public key. An app that downloads bundles should contain the key and trust it before any other call. A
 * second call replaces the key; it cannot be removed. Fails if the text is not an Ed25519 public key. */
MFT_API mft_status mft_trust_key(const char* pem);

/* ---- Training ---- */

typedef struct mft_training_files {
  const char* bundle;  /* folder */
  const char* data;    /* token file, written by mft_dataset_write_tokens() or `mobile-ft` */
  const char* valid;   /* token file for validation; NULL or empty: none */
  const char* adapter; /* folder to start from; NULL or empty: the bundle's own adapter */
  const char* out;     /* folder for the adapter, the checkpoint, and best/ (adapter with the lowest validation loss) */
  int resume;          /* nonzero: resume from the checkpoint in `out`; options that are not set are read from it */
} mft_training_files;

typedef struct mft_training mft_training;

/* Opens the bundle. Planning and training begin with mft_training_run() or mft_training_step(). */
MFT_API mft_status mft_training_open(const mft_training_files* files, const mft_options* options,
                                     mft_training** training);
MFT_API void mft_training_close(mft_training* training);

/*
 * Plans the memory, fails if the budget is too small, and trains to the end. `on_event` may be NULL. MFT_STOPPED means
 * that the run was cancelled or the memory limit was lowered; another training with `resume` continues from there.
 * After that, and after an error, a training can only be closed.
 */
MFT_API mft_status mft_training_run(mft_training* training, mft_event_callback on_event, void* user_data);

/*
 * Makes one step, for a caller with its own loop. The first call also plans the memory. Validation and checkpoints that
 * are due follow the step. Sets `more` to nonzero if steps are left, and to 0 after the last step, when the adapter and
 * the checkpoint are saved. mft_training_run() makes all remaining steps.
 */
MFT_API mft_status mft_training_step(mft_training* training, mft_event_callback on_event, void* user_data, int* more);

/* Ends the run after the current step, with a checkpoint. If no step is in progress, the next call of
 * mft_training_step() writes the checkpoint; if the run has made no step yet, that call makes one step first. May be
 * called from any thread. */
MFT_API void mft_training_cancel(mft_training* training);

/* ---- Bundles: plans, evaluation and generation ---- */

/* An open bundle. It shares nothing with a training of the same bundle. */
typedef struct mft_bundle mft_bundle;

/* Reads the description of the bundle. Weights are verified when they are first used. */
MFT_API mft_status mft_bundle_open(const char* folder, mft_bundle** bundle);
MFT_API void mft_bundle_close(mft_bundle* bundle);

/* Tokens are 0 .. vocab_size - 1. Prompt and answer together have at most max_seq_len tokens. Both functions return 0
 * for NULL. */
MFT_API int64_t mft_bundle_vocab_size(const mft_bundle* bundle);
MFT_API int64_t mft_bundle_max_seq_len(const mft_bundle* bundle);

/* Plans the memory of training with these options, and reports it as a "plan" event. */
MFT_API mft_status mft_bundle_plan(const mft_bundle* bundle, const mft_options* options, mft_event_callback on_event,
                                   void* user_data);

typedef struct mft_evaluation {
  double loss;     /* mean over the targets; its exponential is the perplexity */
  int64_t targets; /* tokens that the loss counts */
} mft_evaluation;

/*
 * Computes the loss over a token file, with the adapter in `adapter_folder` (NULL or empty: the bundle's initial one).
 * The folder is read at every call, so a training's latest adapter is used.
 */
MFT_API mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                                mft_evaluation* result);

/* Receives each generated token. Return nonzero to stop. Must not throw. */
typedef int (*mft_token_callback)(int64_t token, void* user_data);

/*
 * Continues `prompt` with max_tokens tokens, or up to max_seq_len. It does not stop at the model's end tokens; a
 * callback can. Fails if chat_template_kwargs is set, because tokens are not rendered. `adapter_folder` is as in
 * mft_evaluate(). `user_data` is passed to the callback.
 *
 * The four adapters that answers used last stay in memory, so that a change between them takes less than a millisecond.
 * An adapter is read again if its files have changed. The bundle also keeps what it computed for the last prompt and
 * answer: if the next prompt begins with them, only the rest is computed. This memory is freed by mft_evaluate() and
 * mft_bundle_close().
 */
MFT_API mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt,
                                size_t prompt_count, const mft_options* options, mft_token_callback on_token,
                                void* user_data);

/* ---- Chats ---- */

/* A message of a chat. Roles are "system", "user" and "assistant". */
typedef struct mft_message {
  const char* role;
  const char* content;
} mft_message;

/* Receives an answer's text in pieces of whole characters, with U+FFFD in place of NUL. Return nonzero to stop. Must
 * not throw. */
typedef int (*mft_text_callback)(const char* text, void* user_data);

/*
 * Answers the last of `count` messages with the model's chat template, up to the model's end tokens, the option
 * max_tokens or max_seq_len; the status does not tell which of them ended the answer. Other arguments are as in
 * mft_generate(). Fails if the model has no template or the template rejects the messages. The bundle must contain a
 * tokenizer.
 */
MFT_API mft_status mft_chat(mft_bundle* bundle, const char* adapter_folder, const mft_message* messages, size_t count,
                            const mft_options* options, mft_text_callback on_text, void* user_data);

/* As mft_chat(), for a chat as JSON: {"messages": [...]}, optionally with "tools" and "chat_template_kwargs", as in
 * rows of training data. Messages may have "tool_calls", and content may be a list of text parts. */
MFT_API mft_status mft_chat_json(mft_bundle* bundle, const char* adapter_folder, const char* json,
                                 const mft_options* options, mft_text_callback on_text, void* user_data);

/* Ends the answer in progress of mft_generate(), mft_chat() or mft_chat_json() after the current token. While a prompt
 * is read, it ends after the current piece of 256 tokens. The call returns MFT_OK. Does nothing if there is none. May
 * be called from any thread. */
MFT_API void mft_bundle_cancel(mft_bundle* bundle);

/* ---- Training data ---- */

/*
 * A .jsonl file of training rows, in the format that `mobile-ft train` reads. An app can add rows at any time. A row
 * is on disk when its call returns. If a call fails, for example because the disk is full, all earlier rows are kept.
 * Rows that are not valid, or that the chat template cannot render, are rejected when they are added.
 */
typedef struct mft_dataset mft_dataset;

/* Opens `rows_jsonl`, which may be missing, for the tokenizer and chat template of the bundle in `bundle_folder`. */
MFT_API mft_status mft_dataset_open(const char* bundle_folder, const char* rows_jsonl, mft_dataset** dataset);
MFT_API void mft_dataset_close(mft_dataset* dataset);

/* Adds a chat. The assistant's messages are learned. */
MFT_API mft_status mft_dataset_add_chat(mft_dataset* dataset, const mft_message* messages, size_t count);
/* Adds a prompt and its completion, which is learned. If the model has a chat template, they become two messages. */
MFT_API mft_status mft_dataset_add_pair(mft_dataset* dataset, const char* prompt, const char* completion);
/* Adds plain text. All of it is learned. */
MFT_API mft_status mft_dataset_add_text(mft_dataset* dataset, const char* text);
/* Adds any row as one JSON object, for example with a "weight", a preference, or an answer with a "label". */
MFT_API mft_status mft_dataset_add_row(mft_dataset* dataset, const char* json);
/* The number of rows. 0 for NULL. */
MFT_API int64_t mft_dataset_rows(const mft_dataset* dataset);

typedef struct mft_dataset_stats {
  int64_t rows;          /* read */
  int64_t sequences;     /* written */
  int64_t tokens;        /* written */
  int64_t target_tokens; /* tokens that are learned */
  int64_t truncated;     /* rows that were too long and were cut at their end */
  int64_t dropped;       /* rows left out, because no learned token remained */
  int64_t bad;           /* rows left out, because they cannot be used; with the option on_bad_row=skip */
} mft_dataset_stats;

/* Tokenizes all rows into `token_file`, for mft_training_open() with the same seq_len, seed and loss. `stats` may be
 * NULL. */
MFT_API mft_status mft_dataset_write_tokens(const mft_dataset* dataset, const mft_options* options,
                                            const char* token_file, mft_dataset_stats* stats);

/* ---- Learning night after night ---- */

/*
 * A learner's folder: an adapter that learns from new rows again and again, and adopts a version only if it is better.
 * Each call leaves the folder as it was or as it is to be, whenever the process ends.
 */
typedef struct mft_learner mft_learner;

/* Opens the bundle in `bundle_folder`. `folder` may be empty or missing; the first night makes it. */
MFT_API mft_status mft_learner_open(const char* bundle_folder, const char* folder, mft_learner** learner);
MFT_API void mft_learner_close(mft_learner* learner);

/*
 * A night: trains on the rows of the .jsonl file `rows_jsonl` that are new, and on older ones. Rows are known again by
 * their "id", or else by their text. `options` come from mft_learn_options_new(); what the first night set for all
 * nights need not be set again. The "done" event tells the current version and the folder of its adapter. MFT_STOPPED
 * means that the night was cancelled, or that the memory limit was lowered, and the folder is as it was.
 */
MFT_API mft_status mft_learner_learn(mft_learner* learner, const char* rows_jsonl, const mft_options* options,
                                     mft_event_callback on_event, void* user_data);

/* Forgets rows: removes them, and repeats the nights since the last version that was not trained on them. */
MFT_API mft_status mft_learner_forget(mft_learner* learner, const char* const* ids, size_t count,
                                      mft_event_callback on_event, void* user_data);

/* Makes an earlier version that is still kept the current one; 0 is the base model. */
MFT_API mft_status mft_learner_roll_back(mft_learner* learner, int64_t version);

/* Reports the folder's versions and nights as a "done" event. */
MFT_API mft_status mft_learner_state(const mft_learner* learner, mft_event_callback on_event, void* user_data);

/* Ends the call in progress of mft_learner_learn() or mft_learner_forget() after the current step. Does nothing if
 * there is none. May be called from any thread. */
MFT_API void mft_learner_cancel(mft_learner* learner);

/* ---- Text and tokens ---- */

/* A tokenizer.json of a bundle or a Hugging Face model: byte-level BPE, SentencePiece's BPE or unigram. It makes the
 * same tokens as the library `tokenizers`. It adds no special token at the beginning of a text. */
typedef struct mft_tokenizer mft_tokenizer;

/* Fails if the file is damaged or has an unsupported part, which mft_last_error() names. */
MFT_API mft_status mft_tokenizer_open(const char* tokenizer_json, mft_tokenizer** tokenizer);
MFT_API void mft_tokenizer_close(mft_tokenizer* tokenizer);

/* Tokenizes `text`. Writes at most `capacity` tokens to `tokens`, and the total number of tokens to `count`. With a
 * capacity of 0, only `count` is written. */
MFT_API mft_status mft_tokenizer_encode(const mft_tokenizer* tokenizer, const char* text, int64_t* tokens,
                                        size_t capacity, size_t* count);

/* Decodes `tokens`. Writes at most `capacity` bytes to `text`, including the zero byte at the end, and the length of
 * the whole text in bytes to `length`. With a capacity of 0, only `length` is written. Nonzero `skip_special` leaves
 * out special tokens such as <|im_end|>. */
MFT_API mft_status mft_tokenizer_decode(const mft_tokenizer* tokenizer, const int64_t* tokens, size_t token_count,
                                        int skip_special, char* text, size_t capacity, size_t* length);

/* ---- Memory of this process ---- */

typedef struct mft_memory {
  uint64_t rss;      /* resident, mapped files included; Apple's systems: the footprint */
  uint64_t anon;     /* resident anonymous memory */
  uint64_t peak_rss; /* highest rss since the process or the latest training started */
} mft_memory;

/* Returns zeros if the system does not provide the figures. */
MFT_API mft_memory mft_process_memory(void);

#ifdef __cplusplus
}
#endif

#endif /* MOBILE_FT_H */
