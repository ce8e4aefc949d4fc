/*
 * The C API from plain C99: mistakes give a status and a message, never a crash. With a bundle in the environment
 * variable MFT_TEST_BUNDLE, also a whole run: train, cancel, resume, plan, evaluate, generate.
 */

#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_api_test.h"

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

/* Another thread cancels the bundle's answer at its second token. */
struct cancelling {
  mft_bundle* bundle;
  int count;
};

static void* cancel_answer(void* bundle) {
  mft_bundle_cancel(bundle);
  return NULL;
}

static int cancel_at_second(int64_t token, void* user_data) {
  struct cancelling* c = user_data;
  pthread_t thread;
  (void)token;
  if (++c->count == 2) {
    CHECK(pthread_create(&thread, NULL, cancel_answer, c->bundle) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  return 0;
}

static int ignore(const char* event, void* user_data) {
  (void)event;
  (void)user_data;
  return 0;
}

static void test_options(void) {
  mft_options* train = mft_train_options_new();
  mft_options* generate = mft_generate_options_new();
  CHECK(strcmp(mft_options_get(train, "schedule"), "full") == 0);
  CHECK(strcmp(mft_options_get(generate, "max_tokens"), "100") == 0);
  CHECK_OK(mft_options_set(train, "schedule", "suffix"));
  CHECK(strcmp(mft_options_get(train, "schedule"), "suffix") == 0);
  CHECK(mft_options_get(train, "max_tokens") == NULL && mft_options_get(NULL, "schedule") == NULL);
  CHECK_FAILS(mft_options_set(train, "schedule", "half"), MFT_ERROR_FAILED, "schedule half: must be one of full, lcsb");
  CHECK(strcmp(mft_options_get(train, "schedule"), "suffix") == 0);
  CHECK_FAILS(mft_options_set(train, "max_tokens", "1"), MFT_ERROR_ARGUMENT, "unknown option max_tokens");
  CHECK_FAILS(mft_options_set(train, NULL, "1"), MFT_ERROR_ARGUMENT, "name");
  CHECK_FAILS(mft_options_set(train, "lr", NULL), MFT_ERROR_ARGUMENT, "value");
  CHECK_FAILS(mft_options_set(NULL, "lr", "1"), MFT_ERROR_ARGUMENT, "options");
  mft_options_free(train);
  mft_options_free(generate);
  mft_options_free(NULL);
}

static void test_mistakes(void) {
  mft_options* train = mft_train_options_new();
  mft_options* generate = mft_generate_options_new();
  mft_training* training = (mft_training*)train;
  mft_bundle* bundle = (mft_bundle*)train;
  mft_evaluation evaluation;
  const int64_t prompt[] = {1};
  mft_training_files files = {"/no/such", "tokens", NULL, NULL, "out", 0};

  CHECK_FAILS(mft_training_open(&files, train, &training), MFT_ERROR_FAILED, "/no/such/bundle.json");
  CHECK(training == NULL);
  CHECK_FAILS(mft_training_open(&files, generate, &training), MFT_ERROR_ARGUMENT, "mft_train_options_new()");
  CHECK_FAILS(mft_training_open(&files, NULL, &training), MFT_ERROR_ARGUMENT, "options");
  CHECK_FAILS(mft_training_open(&files, train, NULL), MFT_ERROR_ARGUMENT, "training");
  CHECK_FAILS(mft_training_open(NULL, train, &training), MFT_ERROR_ARGUMENT, "files");
  files.bundle = NULL;
  CHECK_FAILS(mft_training_open(&files, train, &training), MFT_ERROR_ARGUMENT, "files.bundle");
  files.bundle = "/no/such";
  files.data = "";
  CHECK_FAILS(mft_training_open(&files, train, &training), MFT_ERROR_ARGUMENT, "files.data");
  files.data = "tokens";
  files.out = NULL;
  CHECK_FAILS(mft_training_open(&files, train, &training), MFT_ERROR_ARGUMENT, "files.out");
  CHECK_FAILS(mft_training_run(NULL, NULL, NULL), MFT_ERROR_ARGUMENT, "training");
  mft_training_cancel(NULL);
  mft_training_close(NULL);

  CHECK_FAILS(mft_bundle_open("/no/such", &bundle), MFT_ERROR_FAILED, "/no/such/bundle.json");
  CHECK(bundle == NULL);
  CHECK_FAILS(mft_bundle_open(NULL, &bundle), MFT_ERROR_ARGUMENT, "folder");
  CHECK_FAILS(mft_bundle_open("/no/such", NULL), MFT_ERROR_ARGUMENT, "bundle");
  CHECK_FAILS(mft_bundle_plan(NULL, train, ignore, NULL), MFT_ERROR_ARGUMENT, "bundle");
  CHECK_FAILS(mft_evaluate(NULL, NULL, "tokens", &evaluation), MFT_ERROR_ARGUMENT, "bundle");
  CHECK_FAILS(mft_generate(NULL, NULL, prompt, 1, generate, collect, NULL), MFT_ERROR_ARGUMENT, "bundle");
  CHECK(mft_bundle_vocab_size(NULL) == 0 && mft_bundle_max_seq_len(NULL) == 0);
  mft_bundle_close(NULL);
  mft_options_free(train);
  mft_options_free(generate);
}

static void test_memory(void) {
  const mft_memory memory = mft_process_memory();
  CHECK(memory.anon > 0 && memory.rss >= memory.anon && memory.peak_rss >= memory.rss);
}

/* Counts events, keeps the last of them, and may ask the run to end. */
struct heard {
  int plans, steps, saves, dones;
  char last[1 << 16];
  int end_after;             /* steps, by the callback's answer */
  mft_training* cancel_from; /* another thread cancels this one during the first step's event */
};

static void* cancel(void* training) {
  mft_training_cancel(training);
  return NULL;
}

static int hear(const char* event, void* user_data) {
  struct heard* h = user_data;
  const int step = strstr(event, "{\"event\":\"step\"") == event;
  h->plans += strstr(event, "{\"event\":\"plan\"") == event;
  h->steps += step;
  h->saves += strstr(event, "{\"event\":\"saved\"") == event;
  h->dones += strstr(event, "{\"event\":\"done\"") == event;
  snprintf(h->last, sizeof(h->last), "%s", event);
  if (step && h->cancel_from != NULL) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel, h->cancel_from) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  return step && h->steps == h->end_after;
}

static void test_train(const char* bundle, const char* tokens, const char* out) {
  static struct heard heard;
  mft_options* options = mft_train_options_new();
  mft_training *training = NULL, *second = NULL;
  mft_training_files files = {NULL, NULL, NULL, NULL, NULL, 0};
  char stepped[96];
  int more = 0;
  files.bundle = bundle;
  files.data = tokens;
  files.out = out;
  CHECK_OK(mft_options_set(options, "steps", "6"));
  CHECK_OK(mft_options_set(options, "seq_len", "8"));
  CHECK_OK(mft_options_set(options, "lr", "5e-3"));
  CHECK_OK(mft_options_set(options, "schedule", "suffix"));
  CHECK_OK(mft_options_set(options, "suffix_depths", "1,2"));

  CHECK_OK(mft_options_set(options, "budget", "1"));
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_FAILS(mft_training_run(training, hear, &heard), MFT_ERROR_FAILED, "too small");
  mft_training_close(training);
  CHECK_OK(mft_options_set(options, "budget", ""));
  files.adapter = "/no/such";
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_FAILS(mft_training_run(training, hear, &heard), MFT_ERROR_FAILED, "/no/such");
  mft_training_close(training);
  files.adapter = "";
  CHECK(heard.plans == 0 && heard.steps == 0);

  CHECK_OK(mft_training_open(&files, options, &training)); /* ended by another thread */
  heard.cancel_from = training;
  CHECK_FAILS(mft_training_run(training, hear, &heard), MFT_STOPPED, "cancelled; step 1 is saved in ");
  CHECK(heard.plans == 1 && heard.steps == 1 && heard.saves == 1 && heard.dones == 0);
  mft_training_close(training);

  memset(&heard, 0, sizeof(heard)); /* ended by the callback's answer */
  heard.end_after = 2;
  files.resume = 1;
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_FAILS(mft_training_run(training, hear, &heard), MFT_STOPPED, "step 3 is saved in ");
  mft_training_close(training);

  memset(&heard, 0, sizeof(heard));
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_OK(mft_training_run(training, hear, &heard));
  CHECK(heard.steps == 3 && heard.saves == 1 && heard.dones == 1);
  CHECK(strstr(heard.last, "\"steps\":6") != NULL);
  mft_training_close(training);

  CHECK_OK(mft_options_set(options, "lr", "1e-3"));
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_FAILS(mft_training_run(training, NULL, NULL), MFT_ERROR_FAILED, "started with lr");
  CHECK_FAILS(mft_training_run(training, NULL, NULL), MFT_ERROR_FAILED, "open another one");
  mft_training_close(training);

  memset(&heard, 0, sizeof(heard)); /* step by step, and then all that are left */
  files.resume = 0;
  snprintf(stepped, sizeof(stepped), "%s/stepped", out);
  files.out = stepped;
  CHECK_OK(mft_options_set(options, "lr", "5e-3"));
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_OK(mft_training_step(training, hear, &heard, &more));
  CHECK(more && heard.plans == 1 && heard.steps == 1);
  CHECK_OK(mft_training_open(&files, options, &second));
  CHECK_FAILS(mft_training_run(second, NULL, NULL), MFT_ERROR_FAILED, "stepped: another run is writing to this folder");
  mft_training_close(second);
  CHECK_OK(mft_training_step(training, NULL, NULL, &more));
  CHECK(more && heard.steps == 1);
  CHECK_OK(mft_training_run(training, hear, &heard));
  CHECK(heard.plans == 1 && heard.steps == 5 && heard.dones == 1);
  more = 7;
  CHECK_FAILS(mft_training_step(training, hear, &heard, &more), MFT_ERROR_FAILED, "open another one");
  CHECK(more == 7);
  CHECK_FAILS(mft_training_step(training, hear, &heard, NULL), MFT_ERROR_ARGUMENT, "more");
  CHECK_FAILS(mft_training_step(NULL, hear, &heard, &more), MFT_ERROR_ARGUMENT, "training");
  mft_training_close(training);

  memset(&heard, 0, sizeof(heard)); /* cancelled between steps: saved, with none more */
  files.resume = 0;
  snprintf(stepped, sizeof(stepped), "%s/between", out);
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_OK(mft_training_step(training, hear, &heard, &more));
  CHECK_OK(mft_training_step(training, hear, &heard, &more));
  mft_training_cancel(training);
  CHECK_FAILS(mft_training_step(training, hear, &heard, &more), MFT_STOPPED, "cancelled; step 2 is saved in ");
  CHECK(heard.steps == 2 && heard.saves == 1);
  mft_training_close(training);
  files.resume = 1;
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_OK(mft_training_run(training, hear, &heard));
  CHECK(heard.steps == 6 && heard.dones == 1);
  mft_training_close(training);

  memset(&heard, 0, sizeof(heard)); /* what is done needs no step more */
  files.resume = 1;
  CHECK_OK(mft_training_open(&files, options, &training));
  CHECK_OK(mft_training_step(training, hear, &heard, &more));
  CHECK(!more && heard.plans == 1 && heard.steps == 0 && heard.dones == 1);
  mft_training_close(training);
  mft_options_free(options);
}

static void test_use(const char* folder, const char* tokens, const char* out) {
  mft_options* options = mft_generate_options_new();
  mft_options* train = mft_train_options_new();
  static struct heard heard;
  mft_bundle* bundle = NULL;
  mft_evaluation before, after;
  struct collected all = {{0}, 0, 0}, again = {{0}, 0, 0}, stopped = {{0}, 0, 2};
  struct cancelling cancelling = {NULL, 0};
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

  memset(&heard, 0, sizeof(heard));
  CHECK_OK(mft_options_set(train, "seq_len", "8"));
  CHECK_OK(mft_bundle_plan(bundle, train, hear, &heard));
  CHECK(heard.plans == 1 && strstr(heard.last, "\"planned_mb\"") != NULL);
  CHECK_FAILS(mft_bundle_plan(bundle, options, hear, &heard), MFT_ERROR_ARGUMENT, "mft_train_options_new()");
  mft_options_free(train);

  CHECK_OK(mft_options_set(options, "max_tokens", "5"));
  CHECK_OK(mft_options_set(options, "temp", "1"));
  CHECK_OK(mft_generate(bundle, out, prompt, 3, options, collect, &all));
  CHECK_OK(mft_generate(bundle, out, prompt, 3, options, collect, &again));
  CHECK_OK(mft_generate(bundle, out, prompt, 3, options, collect, &stopped));
  mft_bundle_cancel(NULL);
  mft_bundle_cancel(bundle); /* which has no answer in progress */
  cancelling.bundle = bundle;
  CHECK_OK(mft_generate(bundle, out, prompt, 3, options, cancel_at_second, &cancelling));
  CHECK(all.count == 5 && again.count == 5 && stopped.count == 2 && cancelling.count == 2);
  CHECK(memcmp(all.tokens, again.tokens, sizeof(all.tokens)) == 0);
  CHECK_OK(mft_options_set(options, "max_tokens", "1000000000")); /* up to the bundle's maximum */
  CHECK_OK(mft_generate(bundle, out, prompt, 3, options, count, &generated));
  CHECK(generated == mft_bundle_max_seq_len(bundle) - 3);
  CHECK_FAILS(mft_generate(bundle, out, prompt, 0, options, collect, &all), MFT_ERROR_FAILED, "the prompt is empty");
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, options, NULL, &all), MFT_ERROR_ARGUMENT, "on_token");
  prompt[1] = mft_bundle_vocab_size(bundle);
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, options, collect, &all), MFT_ERROR_FAILED, "not in the vocabulary");
  prompt[1] = 1;
  CHECK_OK(mft_options_set(options, "chat_template_kwargs", "{\"a\": 1}"));
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, options, collect, &all), MFT_ERROR_FAILED,
              "chat_template_kwargs: applies to chats only");
  CHECK_OK(mft_options_set(options, "chat_template_kwargs", ""));
  CHECK_OK(mft_options_set(options, "temp", "-1"));
  CHECK_FAILS(mft_generate(bundle, out, prompt, 3, options, collect, &all), MFT_ERROR_FAILED, "temp -1");
  mft_options_free(options);
  mft_bundle_close(bundle);
}

struct answer {
  char text[1024];
  int pieces, stop_after;
};

static int append(const char* text, void* user_data) {
  struct answer* answer = user_data;
  strncat(answer->text, text, sizeof(answer->text) - strlen(answer->text) - 1);
  return ++answer->pieces == answer->stop_after;
}

static int steps_only(const char* event, void* user_data) {
  *(int*)user_data += strstr(event, "{\"event\":\"step\"") == event;
  return 0;
}

/* From typed sentences to an answer that was learned. */
static void test_chat(const char* folder, const char* rows, const char* tokens, const char* out) {
  static const mft_message kTaught[] = {{"user", "hello"}, {"assistant", "hi"}};
  static const char* const kTaughtJson =
      "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hello\"}]}]}";
  static const char* const kWithTools =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"tools\": [{\"name\": \"add\"}]}";
  mft_options* train = mft_train_options_new();
  mft_options* generate = mft_generate_options_new();
  mft_dataset* dataset = NULL;
  mft_dataset_stats stats;
  mft_training* training = NULL;
  mft_training_files files = {NULL, NULL, NULL, NULL, NULL, 0};
  mft_bundle* bundle = NULL;
  struct answer answer = {"", 0, 0}, other = {"", 0, 1}, from_json = {"", 0, 0};
  int steps = 0;
  CHECK_OK(mft_dataset_open(folder, rows, &dataset));
  CHECK(mft_dataset_rows(dataset) == 0);
  CHECK_FAILS(mft_dataset_write_tokens(dataset, train, tokens, NULL), MFT_ERROR_FAILED, "empty");
  CHECK_OK(mft_dataset_add_chat(dataset, kTaught, 2));
  CHECK_FAILS(mft_dataset_add_chat(dataset, kTaught, 1), MFT_ERROR_FAILED, "nothing to learn");
  CHECK_FAILS(mft_dataset_add_chat(dataset, kTaught, 0), MFT_ERROR_FAILED, "non-empty list");
  CHECK_FAILS(mft_dataset_add_chat(dataset, NULL, 2), MFT_ERROR_ARGUMENT, "messages");
  CHECK_FAILS(mft_dataset_add_pair(dataset, "a", NULL), MFT_ERROR_ARGUMENT, "completion");
  CHECK_FAILS(mft_dataset_add_text(dataset, "\xff"), MFT_ERROR_FAILED, "UTF-8");
  CHECK_FAILS(mft_dataset_add_row(dataset, "{\"text\""), MFT_ERROR_FAILED, "not JSON");
  CHECK(mft_dataset_rows(dataset) == 1);
  mft_dataset_close(dataset);
  CHECK_OK(mft_dataset_open(folder, rows, &dataset)); /* it is still there */
  CHECK(mft_dataset_rows(dataset) == 1);
  CHECK_OK(mft_dataset_add_pair(dataset, "hello", "hi"));
  CHECK_OK(mft_dataset_add_text(dataset, "hello hi"));
  CHECK_OK(mft_dataset_add_row(dataset, "{\"text\": \"unread\", \"weight\": 0}"));
  CHECK_OK(mft_options_set(train, "seq_len", "64"));
  CHECK_FAILS(mft_dataset_write_tokens(dataset, generate, tokens, &stats), MFT_ERROR_ARGUMENT, "mft_train_options_new");
  CHECK_OK(mft_dataset_write_tokens(dataset, train, tokens, &stats));
  CHECK(stats.rows == 4 && stats.dropped == 1 && stats.truncated == 0 && stats.sequences == 1);
  CHECK(stats.tokens > stats.target_tokens && stats.target_tokens > 8);
  mft_dataset_close(dataset);
  mft_dataset_close(NULL);
  CHECK(mft_dataset_rows(NULL) == 0);
  CHECK_FAILS(mft_dataset_open("/no/such", rows, &dataset), MFT_ERROR_FAILED, "/no/such/bundle.json");
  CHECK(dataset == NULL);

  files.bundle = folder;
  files.data = tokens;
  files.out = out;
  CHECK_OK(mft_options_set(train, "steps", "60"));
  CHECK_OK(mft_options_set(train, "lr", "1e-2"));
  CHECK_OK(mft_training_open(&files, train, &training));
  CHECK_OK(mft_training_run(training, steps_only, &steps));
  CHECK(steps == 60);
  mft_training_close(training);

  CHECK_OK(mft_options_set(generate, "max_tokens", "20"));
  CHECK_OK(mft_bundle_open(folder, &bundle));
  CHECK_OK(mft_chat(bundle, out, kTaught, 1, generate, append, &answer));
  CHECK(strcmp(answer.text, "hi") == 0);
  CHECK_OK(mft_chat(bundle, NULL, kTaught, 1, generate, append, &other));
  CHECK(other.pieces == 1 && strcmp(other.text, "hi") != 0);
  CHECK_OK(mft_chat_json(bundle, out, kTaughtJson, generate, append, &from_json));
  CHECK(strcmp(from_json.text, "hi") == 0);
  CHECK_FAILS(mft_chat_json(bundle, out, kWithTools, generate, append, &other), MFT_ERROR_FAILED, "\"tools\" are not");
  CHECK_FAILS(mft_chat_json(bundle, out, "{", generate, append, &other), MFT_ERROR_FAILED, "not JSON");
  CHECK_FAILS(mft_chat_json(bundle, out, NULL, generate, append, &other), MFT_ERROR_ARGUMENT, "json");
  CHECK_FAILS(mft_chat(bundle, NULL, NULL, 1, generate, append, &other), MFT_ERROR_ARGUMENT, "messages");
  CHECK_FAILS(mft_chat(bundle, NULL, kTaught, 1, generate, NULL, &other), MFT_ERROR_ARGUMENT, "on_text");
  CHECK_FAILS(mft_chat(bundle, NULL, kTaught, 1, train, append, &other), MFT_ERROR_ARGUMENT, "mft_generate_options");
  CHECK_FAILS(mft_chat(bundle, NULL, kTaught, 0, generate, append, &other), MFT_ERROR_FAILED, "");
  mft_bundle_close(bundle);
  mft_options_free(train);
  mft_options_free(generate);
}

static void test_bundle(const char* bundle) {
  char folder[] = "/tmp/mft_test_XXXXXX";
  char tokens[64], out[64], rows[64], command[128];
  if (mkdtemp(folder) == NULL) {
    CHECK(!"mkdtemp");
    return;
  }
  snprintf(tokens, sizeof(tokens), "%s/tokens", folder);
  snprintf(out, sizeof(out), "%s/out", folder);
  write_tokens(tokens);
  test_train(bundle, tokens, out);
  test_use(bundle, tokens, out);
  snprintf(rows, sizeof(rows), "%s/rows.jsonl", folder);
  snprintf(tokens, sizeof(tokens), "%s/chat.tokens", folder);
  snprintf(out, sizeof(out), "%s/chat", folder);
  test_chat(bundle, rows, tokens, out);
  snprintf(command, sizeof(command), "rm -r %s", folder);
  CHECK(system(command) == 0);
}

/* A tokenizer of three tokens and one merge, and what it makes of texts. */
static void test_tokenizer(void) {
  static const char kFile[] =
      "{\"added_tokens\":[{\"id\":3,\"content\":\"<end>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
      "\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":{\"type\":"
      "\"Fuse\"},"
      "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
  char folder[] = "/tmp/mft_tokenizer_XXXXXX", path[64], text[8];
  int64_t tokens[4] = {-1, -1, -1, -1};
  size_t count = 0;
  mft_tokenizer* tokenizer = NULL;
  FILE* file;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
  CHECK_FAILS(mft_tokenizer_open(path, &tokenizer), MFT_ERROR_FAILED, path);
  CHECK_FAILS(mft_tokenizer_open(NULL, &tokenizer), MFT_ERROR_ARGUMENT, "tokenizer_json: must not be NULL");
  CHECK_FAILS(mft_tokenizer_open(path, NULL), MFT_ERROR_ARGUMENT, "tokenizer: must not be NULL");
  file = fopen(path, "wb");
  fwrite(kFile, 1, sizeof(kFile) - 1, file);
  fclose(file);
  CHECK_OK(mft_tokenizer_open(path, &tokenizer));
  CHECK_OK(mft_tokenizer_encode(tokenizer, "abb<end>a", NULL, 0, &count));
  CHECK(count == 4);
  CHECK_OK(mft_tokenizer_encode(tokenizer, "abb<end>a", tokens, 3, &count));
  CHECK(count == 4 && tokens[0] == 2 && tokens[1] == 1 && tokens[2] == 3 && tokens[3] == -1);
  CHECK_OK(mft_tokenizer_decode(tokenizer, tokens, 3, 0, text, sizeof(text), &count));
  CHECK(count == 8 && strcmp(text, "abb<end") == 0); /* cut */
  CHECK_OK(mft_tokenizer_decode(tokenizer, tokens, 3, 1, text, sizeof(text), &count));
  CHECK(count == 3 && strcmp(text, "abb") == 0);
  CHECK_OK(mft_tokenizer_decode(tokenizer, NULL, 0, 1, NULL, 0, &count));
  CHECK(count == 0);
  CHECK_FAILS(mft_tokenizer_encode(tokenizer, "\xff", NULL, 0, &count), MFT_ERROR_FAILED, "not valid UTF-8 at byte 0");
  CHECK_FAILS(mft_tokenizer_encode(tokenizer, "a", NULL, 1, &count), MFT_ERROR_ARGUMENT, "tokens: must not be NULL");
  CHECK_FAILS(mft_tokenizer_encode(NULL, "a", NULL, 0, &count), MFT_ERROR_ARGUMENT, "tokenizer: must not be NULL");
  mft_tokenizer_close(tokenizer);
  mft_tokenizer_close(NULL);
  remove(path);
  remove(folder);
}

static int cancel_at_step(const char* event, void* learner) {
  if (strstr(event, "\"event\":\"step\"") != NULL) mft_learner_cancel(learner);
  return 0;
}

static int keep_last(const char* event, void* text) {
  snprintf(text, 4096, "%s", event);
  return 0;
}

static void test_learner(const char* bundle) {
  char folder[] = "/tmp/mft_learner_XXXXXX", rows[64], state[64], event[4096] = "";
  const char* ids[] = {"row1", "row2"};
  mft_learner* learner = NULL;
  mft_options* options = mft_learn_options_new();
  mft_options* train = mft_train_options_new();
  FILE* file;
  int i;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rows, sizeof(rows), "%s/rows.jsonl", folder);
  snprintf(state, sizeof(state), "%s/state", folder);
  file = fopen(rows, "w");
  for (i = 0; i < 30; ++i) fprintf(file, "{\"id\":\"row%d\",\"prompt\":\"%d?\",\"completion\":\"hello\"}\n", i, i);
  fclose(file);
  CHECK(strcmp(mft_options_get(options, "held_out"), "0.25") == 0 &&
        strcmp(mft_options_get(options, "epochs"), "1") == 0);
  CHECK_OK(mft_options_set(options, "seq_len", "48"));
  CHECK_OK(mft_options_set(options, "general_bound", "10"));
  CHECK_FAILS(mft_learner_open("/no/such", state, &learner), MFT_ERROR_FAILED, "/no/such");
  CHECK_FAILS(mft_learner_open(bundle, NULL, &learner), MFT_ERROR_ARGUMENT, "folder: must not be NULL");
  CHECK_FAILS(mft_learner_open(bundle, state, NULL), MFT_ERROR_ARGUMENT, "learner: must not be NULL");
  CHECK_OK(mft_learner_open(bundle, state, &learner));
  CHECK_FAILS(mft_learner_state(learner, keep_last, event), MFT_ERROR_FAILED, "has no state.json");
  CHECK_FAILS(mft_learner_learn(learner, rows, train, NULL, NULL), MFT_ERROR_ARGUMENT, "mft_learn_options_new()");
  CHECK_FAILS(mft_learner_learn(learner, rows, options, cancel_at_step, learner), MFT_STOPPED, "as it was before");
  CHECK_OK(mft_learner_state(learner, keep_last, event));
  CHECK(strstr(event, "\"version\":0") != NULL && strstr(event, "\"rows\":0") != NULL);
  CHECK_OK(mft_learner_learn(learner, rows, options, keep_last, event));
  CHECK(strstr(event, "\"event\":\"done\"") != NULL && strstr(event, "\"rows\":30") != NULL);
  CHECK_OK(mft_learner_forget(learner, ids, 2, keep_last, event));
  CHECK(strstr(event, "\"rows\":28") != NULL);
  CHECK_FAILS(mft_learner_forget(learner, NULL, 1, NULL, NULL), MFT_ERROR_ARGUMENT, "ids: must not be NULL");
  CHECK_OK(mft_learner_roll_back(learner, 0));
  CHECK_FAILS(mft_learner_roll_back(learner, 99), MFT_ERROR_FAILED, "version 99: ");
  CHECK_FAILS(mft_learner_state(learner, NULL, NULL), MFT_ERROR_ARGUMENT, "on_event: must not be NULL");
  mft_learner_cancel(NULL);
  mft_learner_close(learner);
  mft_learner_close(NULL);
  mft_options_free(options);
  mft_options_free(train);
}

/* The last of all: no call takes it back. */
static void test_trust(const char* folder) {
  const char* key =
      "-----BEGIN PUBLIC KEY-----\n"
      "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
      "-----END PUBLIC KEY-----\n";
  mft_bundle* bundle = NULL;
  mft_training* training = NULL;
  mft_dataset* dataset = NULL;
  mft_training_files files = {folder, "none", NULL, NULL, "none", 0};
  mft_options* options = mft_train_options_new();
  CHECK_FAILS(mft_trust_key(NULL), MFT_ERROR_ARGUMENT, "pem: must not be NULL");
  CHECK_FAILS(mft_trust_key("no key"), MFT_ERROR_FAILED, "must be an Ed25519 public key in PEM");
  CHECK_OK(mft_bundle_open(folder, &bundle));
  mft_bundle_close(bundle);
  CHECK_OK(mft_trust_key(key));
  CHECK_FAILS(mft_bundle_open(folder, &bundle), MFT_ERROR_FAILED, "the bundle is not signed");
  CHECK_FAILS(mft_training_open(&files, options, &training), MFT_ERROR_FAILED, "the bundle is not signed");
  CHECK_FAILS(mft_dataset_open(folder, "none.jsonl", &dataset), MFT_ERROR_FAILED, "the bundle is not signed");
  CHECK(bundle == NULL && training == NULL && dataset == NULL);
  mft_options_free(options);
}

int main(void) {
  const char* bundle = getenv("MFT_TEST_BUNDLE");
  CHECK(strcmp(mft_last_error(), "") == 0);
  CHECK(strlen(strchr(mft_version(), '.')) > 2);
  test_options();
  test_mistakes();
  test_memory();
  test_tokenizer();
  if (bundle != NULL) {
    test_bundle(bundle);
    test_learner(bundle);
    test_trust(bundle);
  } else {
    printf("the rest is skipped: MFT_TEST_BUNDLE is not set\n");
  }
  printf(failures == 0 ? "ok\n" : "%d checks failed\n", failures);
  return failures != 0;
}
