#ifndef MOBILE_FT_H
#define MOBILE_FT_H

/*
 * C API of the mobile-ft runtime: fine-tune, evaluate and generate from a training bundle
 * (docs/reference/bundle_format.md), for JNI and other languages. What it does is what `mobile-ft` and `mft-run` do:
 * one description of a run serves all.
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
 * Errors: functions that can fail return a status, and mft_last_error() says in one line what was wrong. Results are
 * written only where the status is MFT_OK, and a handle that was not opened is left NULL. No C++ exception leaves the
 * library.
 *
 * Ownership: a handle belongs to the caller, who gives it to the matching _close or _free function once; closing NULL
 * does nothing. Strings and arrays are copied or done with when a call returns. Strings are UTF-8 and end with a zero
 * byte; a path must not be NULL or empty unless its description allows it.
 *
 * Threads: every call may come from another thread. Of those on trainings and bundles only one may run at a time, on
 * whatever handle: they use all cores. mft_training_cancel() alone may be called at any time while its handle is open.
 * Options, datasets and tokenizers may be used at any time too, each by one thread at a time, and so may
 * mft_process_memory(): an app may take down what the user types while it trains.
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
  MFT_ERROR_FAILED = 2,   /* a file, an option's value or the memory: see mft_last_error() */
  MFT_STOPPED = 3         /* training ended early, saved, and can be resumed: mft_last_error() says why */
} mft_status;

/* The library's version, such as "0.1.0". */
MFT_API const char* mft_version(void);

/* One line on this thread's latest failed call, empty where there was none. Valid until the thread's next failure. */
MFT_API const char* mft_last_error(void);

/* ---- Options ---- */

/* Options by name and as text, just as `mobile-ft` takes them, with underscores in the names; `mft-run options` lists
 * them. */
typedef struct mft_options mft_options;

/* All at their defaults. NULL where memory ran out. */
MFT_API mft_options* mft_train_options_new(void);
MFT_API mft_options* mft_generate_options_new(void);
MFT_API void mft_options_free(mft_options* options);

/* Sets one, such as "lr" to "1e-3". Fails where there is no such option, or the text is none of its values. */
MFT_API mft_status mft_options_set(mft_options* options, const char* name, const char* value);

/* Its value as text; NULL where there is no such option. Valid until the next call with these options. */
MFT_API const char* mft_options_get(mft_options* options, const char* name);

/* ---- Events ---- */

/*
 * Hears what happens, in the thread that called: `event` is a JSON object (docs/reference/events.md) whose "event"
 * names its kind: "plan", "step", "eval", "saved", "stopped", "done". It is gone when the callback returns. Return
 * nonzero to end a run after the step in progress, saved. Must not throw.
 */
typedef int (*mft_event_callback)(const char* event, void* user_data);

/* ---- Trust ---- */

/* From now on this process opens bundles only where `mobile-ft export --sign` signed them with this key: `pem` is the
 * public one, as text, which an app that downloads bundles has in itself. Call it before anything else; another call
 * trusts another key in its place, none takes it back. Fails where the text is no Ed25519 public key. */
MFT_API mft_status mft_trust_key(const char* pem);

/* ---- Training ---- */

typedef struct mft_training_files {
  const char* bundle;  /* folder */
  const char* data;    /* token file, of mft_dataset_write_tokens() or `mobile-ft` */
  const char* valid;   /* token file for validation; NULL or empty: none */
  const char* adapter; /* folder to start from; NULL or empty: the bundle's own adapter */
  const char* out;     /* folder for adapter and checkpoint, and best/ for the best adapter by validation loss */
  int resume;          /* nonzero: go on from the checkpoint in `out` */
} mft_training_files;

typedef struct mft_training mft_training;

/* Opens the bundle. Nothing else happens before mft_training_run(). */
MFT_API mft_status mft_training_open(const mft_training_files* files, const mft_options* options,
                                     mft_training** training);
MFT_API void mft_training_close(mft_training* training);

/*
 * Plans the memory, refuses where the budget is too small, and trains to the end. `on_event` may be NULL. MFT_STOPPED
 * where the run was cancelled or the memory limit lowered meanwhile; another training with `resume` goes on from there.
 * After that, and after an error, a training can only be closed.
 */
MFT_API mft_status mft_training_run(mft_training* training, mft_event_callback on_event, void* user_data);

/*
 * The same a step at a time, for a caller with a loop of its own: plans at the first call, makes one step, and does
 * what is due after it. `more` gets nonzero where another step is left, 0 where that was the last and all is saved.
 * mft_training_run() makes all that are left.
 */
MFT_API mft_status mft_training_step(mft_training* training, mft_event_callback on_event, void* user_data, int* more);

/* Ends the run after the step in progress, saved; between steps, or before the first, the next call of
 * mft_training_step() saves what there is, if need be after a first step. From any thread, while another one trains. */
MFT_API void mft_training_cancel(mft_training* training);

/* ---- Bundles: plans, evaluation and generation ---- */

/* A bundle open for use. It shares nothing with a training of the same bundle. */
typedef struct mft_bundle mft_bundle;

/* Reads what describes the bundle; weights are verified as they are first used. */
MFT_API mft_status mft_bundle_open(const char* folder, mft_bundle** bundle);
MFT_API void mft_bundle_close(mft_bundle* bundle);

/* Tokens are 0 .. vocab_size - 1; prompt and answer together have at most max_seq_len tokens. 0 for NULL. */
MFT_API int64_t mft_bundle_vocab_size(const mft_bundle* bundle);
MFT_API int64_t mft_bundle_max_seq_len(const mft_bundle* bundle);

/* The memory that training with these options will take, as a "plan" event. */
MFT_API mft_status mft_bundle_plan(const mft_bundle* bundle, const mft_options* options, mft_event_callback on_event,
                                   void* user_data);

typedef struct mft_evaluation {
  double loss;     /* mean over the targets; its exponential is the perplexity */
  int64_t targets; /* tokens that count */
} mft_evaluation;

/*
 * Loss over all of a token file, with the adapter in `adapter_folder`, NULL or empty for the bundle's initial one. The
 * folder is read at every call, so what a training has just saved counts.
 */
MFT_API mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                                mft_evaluation* result);

/* Gets every generated token as it comes. Return nonzero to stop. Must not throw. */
typedef int (*mft_token_callback)(int64_t token, void* user_data);

/* Continues `prompt`. Adapter as for mft_evaluate(). `user_data` goes to the callback as it is. */
MFT_API mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt,
                                size_t prompt_count, const mft_options* options, mft_token_callback on_token,
                                void* user_data);

/* ---- Chats ---- */

/* Of a dialogue. Roles are "system", "user" and "assistant". */
typedef struct mft_message {
  const char* role;
  const char* content;
} mft_message;

/* Gets an answer's text piece by piece, whole characters each. Return nonzero to stop. Must not throw. */
typedef int (*mft_text_callback)(const char* text, void* user_data);

/*
 * Answers the last of `count` messages, by the model's chat template, to the end of its answer or options' max_tokens.
 * Otherwise as mft_generate(). Fails if the model has no template, or the template refuses the messages. The bundle has
 * to hold its tokenizer.
 */
MFT_API mft_status mft_chat(mft_bundle* bundle, const char* adapter_folder, const mft_message* messages, size_t count,
                            const mft_options* options, mft_text_callback on_text, void* user_data);

/* The same for a chat as JSON: {"messages": [...]}, with "tools" and "chat_template_kwargs" if wanted, as rows of
 * training data have them. Messages may have "tool_calls", and content in parts of text. */
MFT_API mft_status mft_chat_json(mft_bundle* bundle, const char* adapter_folder, const char* json,
                                 const mft_options* options, mft_text_callback on_text, void* user_data);

/* ---- Training data ---- */

/*
 * Rows in a .jsonl file, the same that `mobile-ft train` takes, to which rows are added as the user types. A row is on
 * disk when its call returns; where one fails, be it that the disk is full, all rows before it are there. Rows that are
 * no rows are refused as they are added, and so are those that the chat template has no way to render.
 */
typedef struct mft_dataset mft_dataset;

/* `rows_jsonl` need not exist yet. Its rows are read as the model of the bundle in `bundle_folder` reads text. */
MFT_API mft_status mft_dataset_open(const char* bundle_folder, const char* rows_jsonl, mft_dataset** dataset);
MFT_API void mft_dataset_close(mft_dataset* dataset);

/* A dialogue, of which the assistant's messages are learned. */
MFT_API mft_status mft_dataset_add_chat(mft_dataset* dataset, const mft_message* messages, size_t count);
/* A prompt and its completion, which is learned: a question and its answer where the model has a chat template. */
MFT_API mft_status mft_dataset_add_pair(mft_dataset* dataset, const char* prompt, const char* completion);
/* Plain text, all of it learned. */
MFT_API mft_status mft_dataset_add_text(mft_dataset* dataset, const char* text);
/* Any row, as one JSON object: with a "weight", say, or a preference for the loss "dpo". */
MFT_API mft_status mft_dataset_add_row(mft_dataset* dataset, const char* json);
/* 0 for NULL. */
MFT_API int64_t mft_dataset_rows(const mft_dataset* dataset);

typedef struct mft_dataset_stats {
  int64_t rows;          /* read */
  int64_t sequences;     /* written */
  int64_t tokens;        /* written */
  int64_t target_tokens; /* that are learned */
  int64_t truncated;     /* rows that lost their end, being too long */
  int64_t dropped;       /* rows left out, as nothing to learn remained */
  int64_t bad;           /* rows left out, as they cannot be used; with the option on_bad_row=skip */
} mft_dataset_stats;

/* Writes all rows to `token_file`, for mft_training_open() with the same options: seq_len, seed and loss count.
 * `stats` may be NULL. */
MFT_API mft_status mft_dataset_write_tokens(const mft_dataset* dataset, const mft_options* options,
                                            const char* token_file, mft_dataset_stats* stats);

/* ---- Text and tokens ---- */

/* A tokenizer.json, as bundles and models of Hugging Face hold it, and the same tokens as `tokenizers` makes by it:
 * byte-level BPE, SentencePiece's BPE and unigram. It adds no token to a text, such as one that begins it. */
typedef struct mft_tokenizer mft_tokenizer;

/* Fails where the file is damaged, or has a part that is not known here, which mft_last_error() names. */
MFT_API mft_status mft_tokenizer_open(const char* tokenizer_json, mft_tokenizer** tokenizer);
MFT_API void mft_tokenizer_close(mft_tokenizer* tokenizer);

/* `count` gets the number of tokens of `text`, and `tokens` as many of them as `capacity` says, 0 to ask for the
 * number. */
MFT_API mft_status mft_tokenizer_encode(const mft_tokenizer* tokenizer, const char* text, int64_t* tokens,
                                        size_t capacity, size_t* count);

/* `length` gets the number of bytes that `tokens` spell, and `text` as many of them as fit before the zero byte that
 * ends it within `capacity`, which may be 0. Nonzero `skip_special`: without <|im_end|> and the like. */
MFT_API mft_status mft_tokenizer_decode(const mft_tokenizer* tokenizer, const int64_t* tokens, size_t token_count,
                                        int skip_special, char* text, size_t capacity, size_t* length);

/* ---- Memory of this process ---- */

typedef struct mft_memory {
  uint64_t rss;      /* resident, mapped files included */
  uint64_t anon;     /* resident anonymous: what only this process holds */
  uint64_t peak_rss; /* highest rss since the process started, or a training began */
} mft_memory;

/* Zeros where the system does not tell. */
MFT_API mft_memory mft_process_memory(void);

#ifdef __cplusplus
}
#endif

#endif /* MOBILE_FT_H */
