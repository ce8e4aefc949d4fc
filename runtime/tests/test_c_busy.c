/*
 * The C API from two threads, with a bundle in the environment variable MFT_TEST_BUNDLE: a call on a handle that
 * computes is refused, and calls on other handles are not.
 */

#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <pthread.h>
#include <stdlib.h>

#include "c_api_test.h"

static int ignore(const char* event, void* user_data) {
  (void)event;
  (void)user_data;
  return 0;
}

/* Another thread's calls on a training and a bundle while the training computes, and what they return. */
struct intruder {
  mft_training* training;
  const char* bundle;
  mft_status step, run, plan;
  char message[128];
};

static void* intrude(void* user_data) {
  struct intruder* i = user_data;
  mft_options* options = mft_train_options_new();
  mft_bundle* bundle = NULL;
  int more = 0;
  i->run = mft_training_run(i->training, NULL, NULL);
  i->step = mft_training_step(i->training, NULL, NULL, &more);
  snprintf(i->message, sizeof(i->message), "%s", mft_last_error());
  CHECK_OK(mft_options_set(options, "seq_len", "8"));
  CHECK_OK(mft_options_set(options, "threads", "1"));
  CHECK_OK(mft_bundle_open(i->bundle, &bundle));
  i->plan = mft_bundle_plan(bundle, options, ignore, NULL);
  mft_bundle_close(bundle);
  mft_options_free(options);
  return NULL;
}

static int hear_and_intrude(const char* event, void* user_data) {
  pthread_t thread;
  (void)event;
  CHECK(pthread_create(&thread, NULL, intrude, user_data) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  return 1;
}

/* A call on a handle that computes is refused, from another thread and from a callback. Others are not. */
static void test_busy(const char* bundle, const char* tokens, const char* out) {
  struct intruder intruder = {NULL, NULL, MFT_OK, MFT_OK, MFT_ERROR_FAILED, ""};
  mft_options* options = mft_train_options_new();
  mft_training_files files = {NULL, NULL, NULL, NULL, NULL, 0};
  files.bundle = intruder.bundle = bundle;
  files.data = tokens;
  files.out = out;
  CHECK_OK(mft_options_set(options, "steps", "2"));
  CHECK_OK(mft_options_set(options, "seq_len", "8"));
  CHECK_OK(mft_options_set(options, "threads", "1"));
  CHECK_OK(mft_training_open(&files, options, &intruder.training));
  CHECK(mft_training_run(intruder.training, hear_and_intrude, &intruder) == MFT_STOPPED);
  CHECK(intruder.run == MFT_ERROR_BUSY && intruder.step == MFT_ERROR_BUSY && intruder.plan == MFT_OK);
  CHECK(strstr(intruder.message, "busy: another call is computing on this model") == intruder.message);
  mft_training_close(intruder.training);
  mft_options_free(options);
}

int main(void) {
  const char* bundle = getenv("MFT_TEST_BUNDLE");
  char folder[] = "/tmp/mft_busy_XXXXXX";
  char tokens[64], out[64], command[128];
  if (bundle == NULL) {
    printf("skipped: MFT_TEST_BUNDLE is not set\n");
    return 0;
  }
  CHECK(mkdtemp(folder) != NULL);
  snprintf(tokens, sizeof(tokens), "%s/tokens", folder);
  snprintf(out, sizeof(out), "%s/out", folder);
  write_tokens(tokens);
  test_busy(bundle, tokens, out);
  snprintf(command, sizeof(command), "rm -r %s", folder);
  CHECK(system(command) == 0);
  printf(failures == 0 ? "ok\n" : "%d checks failed\n", failures);
  return failures != 0;
}
