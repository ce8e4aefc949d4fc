#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "runtime/c_api/mobile_ft.h"
#include "runtime/core/error.h"
#include "runtime/core/evaluate.h"
#include "runtime/core/generator.h"
#include "runtime/core/model.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/run.h"
#include "runtime/text/tokenizer.h"

/// What was set; the configuration is made of it where it is used, so that options that exclude each other are seen.
struct mft_options {
  bool train;
  std::map<std::string, std::string> given;
  std::string text;  // what mft_options_get gave last
};

struct mft_bundle {
  mft::Model model;
};

struct mft_tokenizer {
  mft::Tokenizer tokenizer;
};

struct mft_training {
  mft::Model model;
  mft::TrainConfig config;
  mft::RunPaths paths;
  mft::StopRequest stop;
  bool ran = false;
};

namespace {

using mft::fail;

struct BadArgument : mft::Error {
  using Error::Error;
};

// A plain array: reporting that memory ran out must not need any.
thread_local char last_error[1024] = "";

void set_last_error(const char* text) {
  std::snprintf(last_error, sizeof(last_error), "%s", text);
  std::replace(std::begin(last_error), std::end(last_error), '\n', ' ');
}

/// Runs `body`; an exception becomes a status and the text of mft_last_error().
template <typename Body>
mft_status guarded(const Body& body) noexcept {
  try {
    body();
    return MFT_OK;
  } catch (const BadArgument& error) {
    set_last_error(error.what());
    return MFT_ERROR_ARGUMENT;
  } catch (const mft::Stopped& stopped) {
    set_last_error(stopped.what());
    return MFT_STOPPED;
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("unknown error");
  }
  return MFT_ERROR_FAILED;
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw BadArgument(std::string(name) + ": must not be NULL");
}

void require_path(const char* path, const char* name) {
  require(path, name);
  if (*path == 0) throw BadArgument(std::string(name) + ": must not be empty");
}

void require_options(const mft_options* options, bool train) {
  require(options, "options");
  if (options->train != train) {
    throw BadArgument(std::string("options: start from mft_") + (train ? "train" : "generate") + "_options_new()");
  }
}

const char* or_empty(const char* text) { return text == nullptr ? "" : text; }

mft_options* new_options(bool train) {
  try {
    return new mft_options{train, {}, {}};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

template <typename C>
bool known(const std::vector<mft::Option<C>>& options, const std::string& name) {
  return std::any_of(options.begin(), options.end(), [&](const auto& option) { return option.name == name; });
}

template <typename C>
void set(const std::vector<mft::Option<C>>& options, mft_options* all, const std::string& name, const char* value) {
  if (!known(options, name)) throw BadArgument("unknown option " + name);
  C config;
  mft::set_option(options, config, name, value);  // that the text reads
  all->given[name] = value;
}

template <typename C>
const char* get(const std::vector<mft::Option<C>>& options, mft_options* all, const std::string& name) {
  if (!known(options, name)) return nullptr;
  const auto given = all->given.find(name);
  all->text = given != all->given.end() ? given->second : mft::find_option(options, name).get(C{});
  return all->text.c_str();
}

}  // namespace

const char* mft_last_error(void) { return last_error; }

mft_options* mft_train_options_new(void) { return new_options(true); }
mft_options* mft_generate_options_new(void) { return new_options(false); }
void mft_options_free(mft_options* options) { delete options; }

mft_status mft_options_set(mft_options* options, const char* name, const char* value) {
  return guarded([&] {
    require(options, "options");
    require(name, "name");
    require(value, "value");
    if (options->train) {
      set(mft::train_options(), options, name, value);
    } else {
      set(mft::generate_options(), options, name, value);
    }
  });
}

const char* mft_options_get(mft_options* options, const char* name) {
  const char* text = nullptr;
  guarded([&] {
    require(options, "options");
    require(name, "name");
    text = options->train ? get(mft::train_options(), options, name) : get(mft::generate_options(), options, name);
  });
  return text;
}

mft_status mft_training_open(const mft_training_files* files, const mft_options* options, mft_training** training) {
  return guarded([&] {
    require(training, "training");
    *training = nullptr;
    require(files, "files");
    require_path(files->bundle, "files.bundle");
    require_path(files->data, "files.data");
    require_path(files->out, "files.out");
    require_options(options, true);
    mft::RunPaths paths;
    paths.data = files->data;
    paths.valid = or_empty(files->valid);
    paths.adapter = or_empty(files->adapter);
    paths.out = files->out;
    paths.resume = files->resume != 0;
    *training = new mft_training{mft::Model(files->bundle), mft::make_train_config(options->given), paths, {}, false};
  });
}

void mft_training_close(mft_training* training) { delete training; }

mft_status mft_training_run(mft_training* training, mft_event_callback on_event, void* user_data) {
  return guarded([&] {
    require(training, "training");
    if (training->ran) fail("this training has run; open another one");
    training->ran = true;
    mft::train(training->model, training->config, training->paths, training->stop, [&](const mft::Event& event) {
      if (on_event != nullptr && on_event(mft::text_of(event).c_str(), user_data) != 0) training->stop.cancel();
    });
  });
}

void mft_training_cancel(mft_training* training) {
  if (training != nullptr) training->stop.cancel();
}

mft_status mft_bundle_open(const char* folder, mft_bundle** bundle) {
  return guarded([&] {
    require(bundle, "bundle");
    *bundle = nullptr;
    require_path(folder, "folder");
    *bundle = new mft_bundle{mft::Model(folder)};
  });
}

void mft_bundle_close(mft_bundle* bundle) { delete bundle; }

int64_t mft_bundle_vocab_size(const mft_bundle* bundle) {
  return bundle == nullptr ? 0 : bundle->model.bundle().vocab_size;
}

int64_t mft_bundle_max_seq_len(const mft_bundle* bundle) {
  return bundle == nullptr ? 0 : bundle->model.bundle().max_seq_len;
}

mft_status mft_bundle_plan(const mft_bundle* bundle, const mft_options* options, mft_event_callback on_event,
                           void* user_data) {
  return guarded([&] {
    require(bundle, "bundle");
    require_options(options, true);
    if (on_event == nullptr) throw BadArgument("on_event: must not be NULL");
    mft::TrainConfig config = mft::make_train_config(options->given);
    config.spill_folder = ".";  // as training may spill to its folder
    on_event(mft::text_of(mft::describe(mft::plan_training(bundle->model, config), config)).c_str(), user_data);
  });
}

mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                        mft_evaluation* result) {
  return guarded([&] {
    require(bundle, "bundle");
    require_path(token_file, "token_file");
    require(result, "result");
    const mft::LossSum sum = mft::evaluate_file(bundle->model, or_empty(adapter_folder), token_file);
    *result = {sum.loss / static_cast<double>(sum.count), sum.count};
  });
}

mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt, size_t prompt_count,
                        const mft_options* options, mft_token_callback on_token, void* user_data) {
  return guarded([&] {
    require(bundle, "bundle");
    require(prompt, "prompt");
    require_options(options, false);
    if (on_token == nullptr) throw BadArgument("on_token: must not be NULL");
    mft::Model& model = bundle->model;
    model.prepare(or_empty(adapter_folder), mft::Generator::prepared_tokens(model.bundle()));
    mft::Generator(model).generate({prompt, prompt + prompt_count}, mft::make_generate_config(options->given),
                                   [&](int64_t token) { return on_token(token, user_data) == 0; });
  });
}

mft_status mft_tokenizer_open(const char* tokenizer_json, mft_tokenizer** tokenizer) {
  if (tokenizer != nullptr) *tokenizer = nullptr;
  return guarded([&] {
    require(tokenizer, "tokenizer");
    require_path(tokenizer_json, "tokenizer_json");
    *tokenizer = new mft_tokenizer{mft::Tokenizer(tokenizer_json)};
  });
}

void mft_tokenizer_close(mft_tokenizer* tokenizer) { delete tokenizer; }

mft_status mft_tokenizer_encode(const mft_tokenizer* tokenizer, const char* text, int64_t* tokens, size_t capacity,
                                size_t* count) {
  return guarded([&] {
    require(tokenizer, "tokenizer");
    require(text, "text");
    require(count, "count");
    if (capacity > 0) require(tokens, "tokens");
    const std::vector<mft::TextToken> found = tokenizer->tokenizer.encode(text);
    for (size_t i = 0; i < std::min(capacity, found.size()); ++i) tokens[i] = found[i].id;
    *count = found.size();
  });
}

mft_status mft_tokenizer_decode(const mft_tokenizer* tokenizer, const int64_t* tokens, size_t token_count,
                                int skip_special, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(tokenizer, "tokenizer");
    if (token_count > 0) require(tokens, "tokens");
    require(length, "length");
    if (capacity > 0) require(text, "text");
    const std::string spelled = tokenizer->tokenizer.decode({tokens, tokens + token_count}, skip_special != 0);
    if (capacity > 0) text[spelled.copy(text, capacity - 1)] = 0;
    *length = spelled.size();
  });
}

mft_memory mft_process_memory(void) {
  const mft::ProcessMemory memory = mft::process_memory();
  return {memory.rss, memory.anon, memory.peak_rss};
}
