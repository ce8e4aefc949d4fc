/*
 * Many runs in one process, through the C API: memory and open files do not grow. Takes a bundle from the environment
 * variable MFT_TEST_BUNDLE, and how many rounds there are as its argument.
 */

#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mobile_ft.h"

/* Freed memory is kept under the address sanitizer, and under an emulator its own memory counts: only files are looked
 * at there. */
#if defined(__SANITIZE_ADDRESS__) || defined(MFT_EMULATED)
#define COUNTS_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTS_MEMORY 0
#endif
#endif
#ifndef COUNTS_MEMORY
#define COUNTS_MEMORY 1
#endif

/* Bytes. What is not closed is 20 KB a round, of data sets, to 500 KB, of trainings; less of options. */
static const double kMostGrowth = 500e3;

static void check(mft_status status, const char* what) {
  if (status == MFT_OK) return;
  printf("%s: %s\n", what, mft_last_error());
  exit(1);
}

static int ignore_event(const char* event, void* user_data) {
  (void)user_data;
  return event == NULL;
}

static int ignore_token(int64_t token, void* user_data) {
  (void)user_data;
  return token < 0;
}

static int ignore_text(const char* text, void* user_data) {
  (void)user_data;
  return text == NULL;
}

static int open_files(void) {
  int count = 0;
  DIR* folder = opendir("/dev/fd");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

/* All that an app does, once. */
static void make_round(const char* bundle_folder, const char* folder, int round) {
  char rows[512], tokens[512], out[512], checkpoint[600];
  const mft_message question = {"user", "hello"};
  const int64_t prompt[2] = {1, 2};
  mft_options* train = mft_train_options_new();
  mft_options* generate = mft_generate_options_new();
  mft_dataset* dataset = NULL;
  mft_training* training = NULL;
  mft_bundle* bundle = NULL;
  mft_evaluation evaluation;
  mft_training_files files = {bundle_folder, tokens, tokens, NULL, out, 0};

  snprintf(rows, sizeof(rows), "%s/rows.jsonl", folder);
  snprintf(tokens, sizeof(tokens), "%s/tokens", folder);
  snprintf(out, sizeof(out), "%s/out", folder);
  snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint.safetensors", out);
  check(mft_options_set(train, "steps", "3"), "steps");
  check(mft_options_set(train, "seq_len", "64"), "seq_len");
  check(mft_options_set(train, "eval_every", "2"), "eval_every");
  check(mft_options_set(train, "schedule", round % 2 ? "lcsb" : "full"), "schedule");
  check(mft_options_set(generate, "max_tokens", "4"), "max_tokens");

  check(mft_dataset_open(bundle_folder, rows, &dataset), "dataset_open");
  if (mft_dataset_rows(dataset) < 3) check(mft_dataset_add_pair(dataset, "hello", " hell"), "dataset_add_pair");
  check(mft_dataset_write_tokens(dataset, train, tokens, NULL), "dataset_write_tokens");
  mft_dataset_close(dataset);

  check(mft_training_open(&files, train, &training), "training_open");
  check(mft_training_run(training, ignore_event, NULL), "training_run");
  mft_training_close(training);
  remove(checkpoint);

  check(mft_bundle_open(bundle_folder, &bundle), "bundle_open");
  check(mft_bundle_plan(bundle, train, ignore_event, NULL), "plan");
  check(mft_evaluate(bundle, out, tokens, &evaluation), "evaluate");
  check(mft_generate(bundle, out, prompt, 2, generate, ignore_token, NULL), "generate");
  check(mft_chat(bundle, out, &question, 1, generate, ignore_text, NULL), "chat");
  mft_bundle_close(bundle);
  mft_options_free(train);
  mft_options_free(generate);
}

int main(int argc, char** argv) {
  const char* bundle = getenv("MFT_TEST_BUNDLE");
  const int rounds = argc > 1 ? atoi(argv[1]) : 40, warm = rounds / 4;
  char folder[] = "/tmp/mft_test_XXXXXX", command[64];
  int files = 0, more_files;
  double anon = 0, growth;
  if (bundle == NULL) {
    printf("skipped: MFT_TEST_BUNDLE is not set\n");
    return 0;
  }
  if (mkdtemp(folder) == NULL) return 1;
  for (int round = 0; round < rounds; ++round) {
    if (round == warm) { /* threads and caches are there by now */
      anon = (double)mft_process_memory().anon;
      files = open_files();
    }
    make_round(bundle, folder, round);
  }
  growth = (double)mft_process_memory().anon - anon;
  more_files = open_files() - files;
  printf("after %d rounds %.3f MB of anonymous memory, %d open files; after %d %+.3f MB, %+d files\n", warm, anon / 1e6,
         files, rounds, growth / 1e6, more_files);
  snprintf(command, sizeof(command), "rm -r %s", folder);
  if (system(command) != 0) return 1;
  return more_files != 0 || (COUNTS_MEMORY && growth > kMostGrowth);
}
