#ifndef MOBILE_FT_H
#define MOBILE_FT_H

/*
 * C API of the mobile-ft runtime: fine-tune, evaluate and generate from a training bundle (docs/bundle_format.md), for
 * JNI and other languages.
 *
 *   mft_train_options options = mft_train_options_default();
 *   options.steps = 200;
 *   options.budget = 512 * 1000 * 1000;
 *   mft_trainer* trainer = NULL;
 *   if (mft_trainer_open("smol.bundle", "train.tokens", NULL, &options, &trainer) != MFT_OK) {
 *     fprintf(stderr, "%s\n", mft_last_error());
 *     return 1;
 *   }
 *   mft_step_result result;
 *   while (mft_trainer_steps_done(trainer) < options.steps && mft_trainer_step(trainer, &result) == MFT_OK) { ... }
 *   mft_trainer_save_adapter(trainer, "out");
 *   mft_trainer_close(trainer);
 *
 * Errors: functions that can fail return a status, and mft_last_error() says in one line what was wrong. Results are
 * written only where the status is MFT_OK, and a handle that was not opened is left NULL. No C++ exception leaves the
 * library.
 *
 * Ownership: a handle from an _open function belongs to the caller, who gives it to the matching _close function once;
 * closing NULL does nothing. Strings, arrays and options are copied or done with when a call returns. Strings are UTF-8
 * and end with a zero byte; a path must not be NULL or empty unless its description allows it.
 *
 * Threads: every call may come from another thread, but only one call may run at a time, on whatever handle: a call
 * uses all cores by itself.
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
  MFT_ERROR_ARGUMENT = 1, /* a NULL where none is allowed, or options of another version of this header */
  MFT_ERROR_FAILED = 2    /* a file, an option or the memory: see mft_last_error() */
} mft_status;

/* One line on this thread's latest failed call, empty where there was none. Valid until the thread's next failure. */
MFT_API const char* mft_last_error(void);

/* ---- Training ---- */

typedef struct mft_trainer mft_trainer;

typedef enum mft_schedule {
  MFT_SCHEDULE_FULL = 0,  /* every layer gets backward at every step */
  MFT_SCHEDULE_LCSB = 1,  /* a share of the layers, `ratio`, chosen by `selection` */
  MFT_SCHEDULE_SUFFIX = 2 /* the top layers, to depths that cycle through `suffix_depths` */
} mft_schedule;

typedef enum mft_selection {
  MFT_SELECTION_CONTIGUOUS = 0, /* blocks of layers in turn */
  MFT_SELECTION_STRIDED = 1,    /* every k-th layer in turn */
  MFT_SELECTION_RANDOM = 2      /* drawn anew at every step */
} mft_selection;

typedef enum mft_backward {
  MFT_BACKWARD_AUTO = 0,     /* whatever is fastest within `budget`: store activations, recompute, spill; without a
                              * budget recompute */
  MFT_BACKWARD_STORE = 1,    /* store every selected layer's activations */
  MFT_BACKWARD_RECOMPUTE = 2 /* compute them again from each layer's input: least memory */
} mft_backward;

typedef enum mft_optimizer {
  MFT_OPTIMIZER_ADAMW = 0,
  MFT_OPTIMIZER_ADAMW_8BIT = 1 /* moments in 8 bits: a quarter of their memory */
} mft_optimizer;

/* Always start from mft_train_options_default(). */
typedef struct mft_train_options {
  size_t struct_size;           /* set by mft_train_options_default(): tells versions of this header apart */
  int64_t steps;                /* optimizer steps of the whole run */
  int64_t seq_len;              /* longest sequence in the token file */
  int64_t batch_size;           /* sequences a micro-batch */
  int64_t grad_accum;           /* micro-batches a step */
  double lr;                    /* highest learning rate */
  int cosine;                   /* nonzero: cosine decay to 0; zero: constant */
  int64_t warmup_steps;         /* linear warm-up before that */
  double weight_decay;          /* AdamW's */
  double max_grad_norm;         /* 0: no clipping */
  mft_schedule schedule;        /* which layers get backward */
  mft_selection selection;      /* of MFT_SCHEDULE_LCSB */
  double ratio;                 /* share of the layers that get backward, above 0, at most 1 */
  const int64_t* suffix_depths; /* of MFT_SCHEDULE_SUFFIX: layers from the top; NULL: a cycle around `ratio` */
  size_t suffix_depths_count;
  int skip_unselected; /* nonzero: layers without backward stay put; zero: they go on by their momentum */
  uint64_t seed;       /* of data order and random selection */
  uint64_t budget;     /* bytes the process may hold; 0: no limit */
  mft_backward backward;
  mft_optimizer optimizer;
  const char* spill_folder; /* where checkpoints may be spilled to within a budget; NULL: nowhere */
} mft_train_options;

/*
 * 100 steps of one sequence of up to 256 tokens, learning rate 2e-4, backward through every layer, no budget.
 */
MFT_API mft_train_options mft_train_options_default(void);

typedef struct mft_step_result {
  int64_t step;     /* counts from 1 */
  double loss;      /* mean over the step's targets, before its update */
  double lr;        /* learning rate of this step */
  double grad_norm; /* before clipping */
  int64_t tokens;   /* input tokens of this step */
} mft_step_result;

/*
 * Verifies the bundle, plans the memory, and allocates all that training needs. Fails where the plan exceeds
 * `options->budget`; the error then names the smallest budget that works. `token_file` holds what to train on
 * (docs/bundle_format.md). `adapter_folder` is the adapter to start from, NULL or empty for the bundle's initial one.
 */
MFT_API mft_status mft_trainer_open(const char* bundle_folder, const char* token_file, const char* adapter_folder,
                                    const mft_train_options* options, mft_trainer** trainer);
MFT_API void mft_trainer_close(mft_trainer* trainer);

/* One optimizer step. Fails where all `steps` of the options are done. `result` may be NULL. */
MFT_API mft_status mft_trainer_step(mft_trainer* trainer, mft_step_result* result);

/* Steps done so far, those before a resume included; 0 for NULL. */
MFT_API int64_t mft_trainer_steps_done(const mft_trainer* trainer);

/*
 * The most bytes that the process will hold while it trains, as planned when the trainer was opened. Counts what the
 * process held then, not what it takes elsewhere later. 0 for NULL.
 */
MFT_API uint64_t mft_trainer_planned_bytes(const mft_trainer* trainer);

/*
 * Writes into `folder`, which is made where it is missing: checkpoint.safetensors, for mft_trainer_resume(), or the
 * adapter as PEFT saves it (adapter_model.safetensors, adapter_config.json). A file is replaced whole or, where saving
 * fails, not at all.
 */
MFT_API mft_status mft_trainer_save_checkpoint(const mft_trainer* trainer, const char* folder);
MFT_API mft_status mft_trainer_save_adapter(const mft_trainer* trainer, const char* folder);

/*
 * Continues from the checkpoint in `folder`, exactly as if the run had never stopped. Fails where bundle, token file or
 * options are not those that the checkpoint was made with; the error names what differs. Close the trainer after a
 * failed resume.
 */
MFT_API mft_status mft_trainer_resume(mft_trainer* trainer, const char* folder);

/* ---- Evaluation and generation ---- */

/* A bundle open for evaluation and generation. It shares nothing with a trainer of the same bundle. */
typedef struct mft_bundle mft_bundle;

/* Verifies every file of the bundle. */
MFT_API mft_status mft_bundle_open(const char* folder, mft_bundle** bundle);
MFT_API void mft_bundle_close(mft_bundle* bundle);

/* Tokens are 0 .. vocab_size - 1; prompt and answer together have at most max_seq_len tokens. 0 for NULL. */
MFT_API int64_t mft_bundle_vocab_size(const mft_bundle* bundle);
MFT_API int64_t mft_bundle_max_seq_len(const mft_bundle* bundle);

typedef struct mft_evaluation {
  double loss;     /* mean over the targets; its exponential is the perplexity */
  int64_t targets; /* tokens that count */
} mft_evaluation;

/*
 * Loss over all of a token file, with the adapter in `adapter_folder`, NULL or empty for the bundle's initial one. The
 * folder is read at every call, so what a trainer has just saved counts.
 */
MFT_API mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                                mft_evaluation* result);

/* Always start from mft_generate_options_default(). */
typedef struct mft_generate_options {
  size_t struct_size; /* set by mft_generate_options_default() */
  int64_t max_tokens; /* generation ends here, or where the bundle's max_seq_len is reached */
  double temperature; /* 0: always the likeliest token */
  uint64_t seed;      /* of sampling */
} mft_generate_options;

/* At most 100 tokens, temperature 0. */
MFT_API mft_generate_options mft_generate_options_default(void);

/* Gets every generated token as it comes; end-of-text tokens too. Return nonzero to stop. Must not throw. */
typedef int (*mft_token_callback)(int64_t token, void* user_data);

/* Continues `prompt`. Adapter as for mft_evaluate(). `user_data` goes to the callback as it is. */
MFT_API mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt,
                                size_t prompt_count, const mft_generate_options* options, mft_token_callback on_token,
                                void* user_data);

/* ---- Memory of this process ---- */

typedef struct mft_memory {
  uint64_t rss;      /* resident, mapped files included */
  uint64_t anon;     /* resident anonymous: what only this process holds */
  uint64_t peak_rss; /* highest rss since the process started */
} mft_memory;

/* Zeros where the system does not tell. */
MFT_API mft_memory mft_process_memory(void);

#ifdef __cplusplus
}
#endif

#endif /* MOBILE_FT_H */
