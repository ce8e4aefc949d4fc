#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/bundle/signature.h"
#include "runtime/c_api/call.h"
#include "runtime/config/learn_config.h"
#include "runtime/data/row.h"
#include "runtime/generate/generator.h"
#include "runtime/model/model.h"
#include "runtime/platform/process_memory.h"
#include "runtime/text/bundle_text.h"
#include "runtime/text/text_stream.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"

struct mft_bundle {
  mft::Model model;
  std::optional<mft::BundleText> text;      // read when a chat needs it
  std::optional<mft::Generator> generator;  // from the first answer to the next evaluation
  std::atomic<bool> cancelled{false};       // the answer in progress

  mft::Generator& answering_with(const std::string& adapter_folder) {
    if (!generator) {
      model.prepare("", mft::Generator::prepared_tokens(model.bundle()));
      generator.emplace(model);
    }
    generator->use_adapter(adapter_folder);
    return *generator;
  }
};

struct mft_training {
  mft::Model model;
  mft::TrainConfig config;
  mft::RunPaths paths;
  mft::StopRequest stop;
  // Of the call in progress, whose events these are.
  mft_event_callback on_event = nullptr;
  void* user_data = nullptr;
  std::unique_ptr<mft::Run> run;  // from the first step to the last
  bool over = false;
};

namespace {

using mft::BadArgument;
using mft::fail;
using mft::guarded;
using mft::or_empty;
using mft::require;
using mft::require_options;
using mft::require_path;

// A plain array: reporting that memory ran out must not need any.
thread_local char last_error[1024] = "";

/// What `messages` point to is checked, so that none of it is NULL.
mft::Chat chat_of(const mft_message* messages, size_t count) {
  if (count > 0) require(messages, "messages");
  mft::Chat chat;
  for (size_t i = 0; i < count; ++i) {
    require(messages[i].role, "role");
    require(messages[i].content, "content");
    chat.add(messages[i].role, messages[i].content);
  }
  return chat;
}

/// Answers what `chat` gives with the open bundle.
mft_status answer(mft_bundle* bundle, const char* adapter_folder, const std::function<mft::Chat()>& chat,
                  const mft_options* options, mft_text_callback on_text, void* user_data) {
  return guarded([&] {
    require(bundle, "bundle");
    require_options(options, mft_options::kGenerate);
    if (on_text == nullptr) throw BadArgument("on_text: must not be NULL");
    const mft::Chat asked = chat();
    mft::Model& model = bundle->model;
    const auto call = model.begin_call();
    bundle->cancelled = false;
    if (!bundle->text) bundle->text.emplace(model.bundle());
    mft::GenerateConfig config = mft::make_generate_config(options->given);
    config.stop_tokens = bundle->text->end_tokens();
    mft::TextStream stream(bundle->text->tokenizer());
    mft::Generator& generator = bundle->answering_with(or_empty(adapter_folder));
    bool wanted = true;
    const auto give = [&](const std::string& text) {
      wanted = wanted && (text.empty() || on_text(text.c_str(), user_data) == 0);
      return wanted;
    };
    generator.generate(
        bundle->text->prompt(asked, {config.chat_template_kwargs, ""}), config,
        [&](int64_t token) { return give(stream.add(token)) && !bundle->cancelled; },
        [&] { return !bundle->cancelled; });
    give(stream.finish());
  });
}

mft_options* new_options(mft_options::Kind kind) {
  try {
    return new mft_options{kind, {}, {}};
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

/// Calls `body` with the table of the options of a kind.
template <typename Body>
void with_table(mft_options::Kind kind, const Body& body) {
  switch (kind) {
    case mft_options::kTrain:
      return body(mft::train_options());
    case mft_options::kGenerate:
      return body(mft::generate_options());
    case mft_options::kLearn:
      return body(mft::learn_options());
  }
}

/// Ready to step: plans, at the first call.
void begin(mft_training* training, mft_event_callback on_event, void* user_data) {
  if (training->over) fail("this training is finished; open another one");
  training->on_event = on_event;
  training->user_data = user_data;
  if (training->run) return;
  training->over = true;  // where it cannot begin
  const auto emit = [training](const mft::Event& event) {
    const auto hear = training->on_event;
    if (hear != nullptr && hear(mft::text_of(event).c_str(), training->user_data) != 0) training->stop.cancel();
  };
  training->run = std::make_unique<mft::Run>(training->model, training->config, training->paths, emit);
  training->over = false;
}

/// Whether another step is left.
bool step(mft_training* training) {
  training->over = true;                                     // where it fails
  std::unique_ptr<mft::Run> run = std::move(training->run);  // whose memory goes with the last step
  training->over = !run->step(training->stop);
  if (!training->over) training->run = std::move(run);
  return !training->over;
}

}  // namespace

void mft::set_last_error(const char* text) {
  std::snprintf(last_error, sizeof(last_error), "%s", text);
  std::replace(std::begin(last_error), std::end(last_error), '\n', ' ');
}

const char* mft_version(void) { return MFT_VERSION; }

const char* mft_last_error(void) { return last_error; }

mft_options* mft_train_options_new(void) { return new_options(mft_options::kTrain); }
mft_options* mft_generate_options_new(void) { return new_options(mft_options::kGenerate); }
mft_options* mft_learn_options_new(void) { return new_options(mft_options::kLearn); }
void mft_options_free(mft_options* options) { delete options; }

mft_status mft_options_set(mft_options* options, const char* name, const char* value) {
  return guarded([&] {
    require(options, "options");
    require(name, "name");
    require(value, "value");
    with_table(options->kind, [&](const auto& table) { set(table, options, name, value); });
  });
}

const char* mft_options_get(mft_options* options, const char* name) {
  const char* text = nullptr;
  guarded([&] {
    require(options, "options");
    require(name, "name");
    with_table(options->kind, [&](const auto& table) { text = get(table, options, name); });
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
    require_options(options, mft_options::kTrain);
    mft::RunPaths paths;
    paths.data = files->data;
    paths.valid = or_empty(files->valid);
    paths.adapter = or_empty(files->adapter);
    paths.out = files->out;
    paths.resume = files->resume != 0;
    const auto given = paths.resume ? mft::resumed_options(paths.out, options->given) : options->given;
    *training = new mft_training{
        mft::Model(files->bundle), mft::make_train_config(given), paths, {}, nullptr, nullptr, nullptr, false};
  });
}

void mft_training_close(mft_training* training) { delete training; }

mft_status mft_training_step(mft_training* training, mft_event_callback on_event, void* user_data, int* more) {
  return guarded([&] {
    require(training, "training");
    require(more, "more");
    const auto call = training->model.begin_call();
    begin(training, on_event, user_data);
    *more = step(training);
  });
}

mft_status mft_training_run(mft_training* training, mft_event_callback on_event, void* user_data) {
  return guarded([&] {
    require(training, "training");
    const auto call = training->model.begin_call();
    begin(training, on_event, user_data);
    while (step(training)) {
    }
  });
}

void mft_training_cancel(mft_training* training) {
  if (training != nullptr) training->stop.cancel();
}

mft_status mft_trust_key(const char* pem) {
  return guarded([&] {
    require(pem, "pem");
    mft::trust_key(pem);
  });
}

mft_status mft_bundle_open(const char* folder, mft_bundle** bundle) {
  return guarded([&] {
    require(bundle, "bundle");
    *bundle = nullptr;
    require_path(folder, "folder");
    *bundle = new mft_bundle{mft::Model(folder), {}, {}};
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
    require_options(options, mft_options::kTrain);
    if (on_event == nullptr) throw BadArgument("on_event: must not be NULL");
    const auto call = bundle->model.begin_call();
    mft::TrainConfig config = mft::make_train_config(options->given);
    config.offload_folder = ".";  // as training may offload to its folder
    on_event(mft::text_of(mft::describe(mft::plan_training(bundle->model, config), config)).c_str(), user_data);
  });
}

mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                        mft_evaluation* result) {
  return guarded([&] {
    require(bundle, "bundle");
    require_path(token_file, "token_file");
    require(result, "result");
    const auto call = bundle->model.begin_call();
    bundle->generator.reset();  // its memory, for the evaluation
    bundle->model.keep_resident(0);
    const mft::LossSum sum = mft::evaluate_file(bundle->model, or_empty(adapter_folder), token_file);
    *result = {sum.loss / static_cast<double>(sum.count), sum.count};
  });
}

mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt, size_t prompt_count,
                        const mft_options* options, mft_token_callback on_token, void* user_data) {
  return guarded([&] {
    require(bundle, "bundle");
    require(prompt, "prompt");
    require_options(options, mft_options::kGenerate);
    if (on_token == nullptr) throw BadArgument("on_token: must not be NULL");
    const auto call = bundle->model.begin_call();
    bundle->cancelled = false;
    const mft::GenerateConfig config = mft::make_generate_config(options->given);
    if (!config.chat_template_kwargs.empty()) {
      fail("chat_template_kwargs: applies to chats only; a prompt of tokens is not rendered");
    }
    bundle->answering_with(or_empty(adapter_folder))
        .generate(
            {prompt, prompt + prompt_count}, config,
            [&](int64_t token) { return on_token(token, user_data) == 0 && !bundle->cancelled; },
            [&] { return !bundle->cancelled; });
  });
}

mft_status mft_chat(mft_bundle* bundle, const char* adapter_folder, const mft_message* messages, size_t count,
                    const mft_options* options, mft_text_callback on_text, void* user_data) {
  return answer(bundle, adapter_folder, [&] { return chat_of(messages, count); }, options, on_text, user_data);
}

mft_status mft_chat_json(mft_bundle* bundle, const char* adapter_folder, const char* json, const mft_options* options,
                         mft_text_callback on_text, void* user_data) {
  const auto chat = [&] {
    require(json, "json");
    return mft::parse_chat(json);
  };
  return answer(bundle, adapter_folder, chat, options, on_text, user_data);
}

void mft_bundle_cancel(mft_bundle* bundle) {
  if (bundle != nullptr) bundle->cancelled = true;
}

mft_memory mft_process_memory(void) {
  const mft::ProcessMemory memory = mft::process_memory();
  return {memory.rss, memory.anon, memory.peak_rss};
}
