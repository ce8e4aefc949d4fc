/*
 * The C API from plain C99: mistakes give a status and a message, never a crash. With a bundle in the environment
 * variable MFT_TEST_BUNDLE, also a whole run: train, save, resume, evaluate, generate.
 */

#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/c_api/mobile_ft.h"

static int failures = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      ++failures;                                                    \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                \
  } while (0)

/* The call fails with this status, and the one line about it holds `part`. */
#define CHECK_FAILS(call, status, part)                                                                \
  do {                                                                                                 \
    const mft_status check_status = (call);                                                            \
    if (check_status != (status) || strstr(mft_last_error(), part) == NULL ||                          \
        strchr(mft_last_error(), '\n') != NULL) {                                                      \
      ++failures;                                                                                      \
      printf("%s:%d: %s gave %d \"%s\"\n", __FILE__, __LINE__, #call, check_status, mft_last_error()); \
    }                                                                                                  \
  } while (0)

#define CHECK_OK(call)                                                        \
  do {                                                                        \
    if ((call) != MFT_OK) {                                                   \
      ++failures;                                                             \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, mft_last_error()); \
    }                                                                         \
  } while (0)

/* A token file of one sequence, 0 1 2 ... 7, every token predicting the next (docs/bundle_format.md). */
static void write_tokens(const char* path) {
  char header[512];
  int32_t values[3][8];
  const int64_t offsets[2] = {0, 8};
  uint64_t size;
  FILE* file = fopen(path, "wb");
  for (int32_t i = 0; i < 8; ++i) {
    values[0][i] = values[2][i] = i;
    values[1][i] = i + 1;
  }
  size = (uint64_t)snprintf(header, sizeof(header), "%s%s%s%s",
                            "{\"tokens\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[0,32]},",
                            "\"targets\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[32,64]},",
                            "\"positions\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[64,96]},",
                            "\"offsets\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[96,112]}}");
  while (size % 8 != 0) header[size++] = ' ';
  fwrite(&size, 1, sizeof(size), file);
  fwrite(header, 1, size, file);
  fwrite(values, 1, sizeof(values), file);
  fwrite(offsets, 1, sizeof(offsets), file);
  fclose(file);
}

struct collected {
  int64_t tokens[64];
  int count;
  int stop_after;
};

static int collect(int64_t token, void* user_data) {
  struct collected* c = user_data;
  c->tokens[c->count++] = token;
  return c->count == c->stop_after;
}

static int count(int64_t token, void* user_data) {
  (void)token;
  ++*(int64_t*)user_data;
  return 0;
}

static void test_mistakes(void) {
  mft_train_options options = mft_train_options_default();
  mft_generate_options generate = mft_generate_options_default();
  mft_trainer* trainer = (mft_trainer*)&options;
  mft_bundle* bundle = (mft_bundle*)&options;
  mft_evaluation evaluation;
  const int64_t prompt[] = {1};

  CHECK(strcmp(mft_last_error(), "") == 0);
  CHECK_FAILS(mft_trainer_open("/no/such", "tokens", NULL, &options, &trainer), MFT_ERROR_FAILED,
              "/no/such/bundle.json");
  CHECK(trainer == NULL);
  CHECK_FAILS(mft_trainer_open(NULL, "tokens", NULL, &options, &trainer), MFT_ERROR_ARGUMENT, "bundle_folder");
  CHECK_FAILS(mft_trainer_open("/no/such", NULL, NULL, &options, &trainer), MFT_ERROR_ARGUMENT, "token_file");
  CHECK_FAILS(mft_trainer_open("/no/such", "", NULL, &options, &trainer), MFT_ERROR_ARGUMENT, "token_file");
  CHECK_FAILS(mft_trainer_open("/no/such", "tokens", NULL, NULL, &trainer), MFT_ERROR_ARGUMENT, "options");
  CHECK_FAILS(mft_trainer_open("/no/such", "tokens", NULL, &options, NULL), MFT_ERROR_ARGUMENT, "trainer");
  memset(&options, 0, sizeof(options));
  CHECK_FAILS(mft_trainer_open("/no/such", "tokens", NULL, &options, &trainer), MFT_ERROR_ARGUMENT,
              "start from mft_train_options_default()");
  options = mft_train_options_default();
  options.schedule = (mft_schedule)3;
  CHECK_FAILS(mft_trainer_open("/no/such", "tokens", NULL, &options, &trainer), MFT_ERROR_ARGUMENT, "schedule");
  CHECK_FAILS(mft_trainer_step(NULL, NULL), MFT_ERROR_ARGUMENT, "trainer");
  CHECK_FAILS(mft_trainer_save_checkpoint(NULL, "out"), MFT_ERROR_ARGUMENT, "trainer");
  CHECK_FAILS(mft_trainer_save_adapter(NULL, "out"), MFT_ERROR_ARGUMENT, "trainer");
  CHECK_FAILS(mft_trainer_resume(NULL, "out"), MFT_ERROR_ARGUMENT, "trainer");
  CHECK(mft_trainer_steps_done(NULL) == 0 && mft_trainer_planned_bytes(NULL) == 0);
  mft_trainer_close(NULL);

  CHECK_FAILS(mft_bundle_open("/no/such", &bundle), MFT_ERROR_FAILED, "/no/such/bundle.json");
  CHECK(bundle == NULL);
  CHECK_FAILS(mft_bundle_open(NULL, &bundle), MFT_ERROR_ARGUMENT, "folder");
  CHECK_FAILS(mft_bundle_open("/no/such", NULL), MFT_ERROR_ARGUMENT, "bundle");
  CHECK_FAILS(mft_evaluate(NULL, NULL, "tokens", &evaluation), MFT_ERROR_ARGUMENT, "bundle");
  CHECK_FAILS(mft_generate(NULL, NULL, prompt, 1, &generate, collect, NULL), MFT_ERROR_ARGUMENT, "bundle");
  CHECK(mft_bundle_vocab_size(NULL) == 0 && mft_bundle_max_seq_len(NULL) == 0);
  mft_bundle_close(NULL);
}

static void test_memory(void) {
  const mft_memory memory = mft_process_memory();
  CHECK(memory.anon > 0 && memory.rss >= memory.anon && memory.peak_rss >= memory.rss);
}

static void test_train(const char* bundle, const char* tokens, const char* out) {
  mft_train_options options = mft_train_options_default();
  mft_trainer* trainer = NULL;
  mft_step_result first, last;
  const int64_t depths[] = {1, 2};
  options.steps = 4;
  options.seq_len = 8;
  options.lr = 5e-3;
  options.schedule = MFT_SCHEDULE_SUFFIX;
  options.suffix_depths = depths;
  options.suffix_depths_count = 2;

  options.budget = 1;
  CHECK_FAILS(mft_trainer_open(bundle, tokens, NULL, &options, &trainer), MFT_ERROR_FAILED, "too small");
  options.budget = 0;
  CHECK_FAILS(mft_trainer_open(bundle, "/no/such", NULL, &options, &trainer), MFT_ERROR_FAILED, "/no/such");
  CHECK_FAILS(mft_trainer_open(bundle, tokens, "/no/such", &options, &trainer), MFT_ERROR_FAILED, "/no/such");
  CHECK_OK(mft_trainer_open(bundle, tokens, "", &options, &trainer));
  if (trainer == NULL) return;
  CHECK(mft_trainer_planned_bytes(trainer) > 1000000);
  CHECK(mft_trainer_steps_done(trainer) == 0);
  CHECK_OK(mft_trainer_step(trainer, &first));
  CHECK(first.step == 1 && first.tokens == 8 && first.loss > 0 && first.grad_norm > 0 && first.lr == options.lr);
  CHECK_OK(mft_trainer_step(trainer, NULL));
  CHECK_OK(mft_trainer_save_checkpoint(trainer, out));
  CHECK_OK(mft_trainer_step(trainer, &last));
  CHECK(last.step == 3 && mft_trainer_steps_done(trainer) == 3);
  CHECK_FAILS(mft_trainer_save_checkpoint(trainer, tokens), MFT_ERROR_FAILED, "cannot be created");
  mft_trainer_close(trainer);

  CHECK_OK(mft_trainer_open(bundle, tokens, NULL, &options, &trainer));
  CHECK_OK(mft_trainer_resume(trainer, out));
  CHECK(mft_trainer_steps_done(trainer) == 2);
  CHECK_OK(mft_trainer_step(trainer, &first));
  CHECK(first.loss == last.loss && first.grad_norm == last.grad_norm);
  CHECK_OK(mft_trainer_step(trainer, &last));
  CHECK_FAILS(mft_trainer_step(trainer, &last), MFT_ERROR_FAILED, "all 4 steps are done");
  CHECK_OK(mft_trainer_save_adapter(trainer, out));
  mft_trainer_close(trainer);

  options.lr = 1e-3;
  CHECK_OK(mft_trainer_open(bundle, tokens, NULL, &options, &trainer));
  CHECK_FAILS(mft_trainer_resume(trainer, out), MFT_ERROR_FAILED, "started with lr");
  mft_trainer_close(trainer);
}

static void test_use(const char* folder, const char* tokens, const char* out) {
  mft_generate_options options = mft_generate_options_default();
  mft_bundle* bundle = NULL;
  mft_evaluation before, after;
  struct collected all = {{0}, 0, 0}, again = {{0}, 0, 0}, stopped = {{0}, 0, 2};
  int64_t prompt[] = {0, 1, 2};
  int64_t generated = 0;
  CHECK_OK(mft_bundle_open(folder, &bundle));
  if (bundle == NULL) return;
  CHECK(mft_bundle_vocab_size(bundle) > 8 && mft_bundle_max_seq_len(bundle) >= 8);
  CHECK_OK(mft_evaluate(bundle, NULL, tokens, &before));
  CHECK_OK(mft_evaluate(bundle, out, tokens, &after));
  CHECK(before.targets == 8 && after.targets == 8);
  CHECK(after.loss < before.loss);
  CHECK_FAILS(mft_evaluate(bundle, "/no/such", tokens, &after), MFT_ERROR_FAILED, "/no/such");
  CHECK_FAILS(mft_evaluate(bundle, NULL, tokens, NULL), MFT_ERROR_ARGUMENT, "result");

  options.max_tokens = 5;
  options.temperature = 1;
  CHECK_OK(mft_generate(bundle, out, prompt, 3, &options, collect, &all));
  CHECK_OK(mft_generate(bundle, out, prompt, 3, &options, collect, &again));
  CHECK_OK(mft_generate(bundle, out, prompt, 3, &options, collect, &stopped));
  CHECK(all.count == 5 && again.count == 5 && stopped.count == 2);
  CHECK(memcmp(all.tokens, again.tokens, sizeof(all.tokens)) == 0);
  options.max_tokens = INT64_MAX; /* up to the bundle's maximum */
  CHECK_OK(mft_generate(bundle, out, prompt, 3, &options, count, &generated));
  CHECK(generated == mft_bundle_max_seq_len(bundle) - 3);
  CHECK_FAILS(mft_generate(bundle, out, prompt, 0, &options, collect, &all), MFT_ERROR_FAILED, "prompt of 0 tokens");
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, &options, NULL, &all), MFT_ERROR_ARGUMENT, "on_token");
  prompt[1] = mft_bundle_vocab_size(bundle);
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, &options, collect, &all), MFT_ERROR_FAILED, "not in the vocabulary");
  prompt[1] = 1;
  options.temperature = -1;
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, &options, collect, &all), MFT_ERROR_FAILED, "temp -1");
  mft_bundle_close(bundle);
}

static void test_bundle(const char* bundle) {
  char folder[] = "/tmp/mft_test_XXXXXX";
  char tokens[64], out[64], command[128];
  if (mkdtemp(folder) == NULL) {
    CHECK(!"mkdtemp");
    return;
  }
  snprintf(tokens, sizeof(tokens), "%s/tokens", folder);
  snprintf(out, sizeof(out), "%s/out", folder);
  write_tokens(tokens);
  test_train(bundle, tokens, out);
  test_use(bundle, tokens, out);
  snprintf(command, sizeof(command), "rm -r %s", folder);
  CHECK(system(command) == 0);
}

int main(void) {
  const char* bundle = getenv("MFT_TEST_BUNDLE");
  test_mistakes();
  test_memory();
  if (bundle != NULL) {
    test_bundle(bundle);
  } else {
    printf("the rest is skipped: MFT_TEST_BUNDLE is not set\n");
  }
  printf(failures == 0 ? "ok\n" : "%d checks failed\n", failures);
  return failures != 0;
}
