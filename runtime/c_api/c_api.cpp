#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/c_api/mobile_ft.h"
#include "runtime/core/adapter.h"
#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/core/generator.h"
#include "runtime/core/model.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/token_file.h"
#include "runtime/core/trainer.h"

struct mft_bundle {
  mft::Model model;
};

struct mft_trainer {
  mft_trainer(const char* bundle, const char* tokens, const char* adapter, const mft::TrainConfig& config)
      : model(bundle), data(tokens, model.bundle().vocab_size), trainer(model, config, adapter), steps(config.steps) {}

  mft::Model model;
  mft::TokenFile data;
  mft::Trainer trainer;
  int64_t steps;
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

template <typename Options>
void require_options(const Options* options, const char* maker) {
  require(options, "options");
  if (options->struct_size != sizeof(Options)) throw BadArgument(std::string("options: start from ") + maker);
}

const char* or_empty(const char* text) { return text == nullptr ? "" : text; }

mft::TrainConfig train_config(const mft_train_options& o) {
  if (o.schedule < MFT_SCHEDULE_FULL || o.schedule > MFT_SCHEDULE_SUFFIX) {
    throw BadArgument("schedule: not an mft_schedule");
  }
  if (o.selection < MFT_SELECTION_CONTIGUOUS || o.selection > MFT_SELECTION_RANDOM) {
    throw BadArgument("selection: not an mft_selection");
  }
  if (o.backward < MFT_BACKWARD_AUTO || o.backward > MFT_BACKWARD_RECOMPUTE) {
    throw BadArgument("backward: not an mft_backward");
  }
  if (o.optimizer < MFT_OPTIMIZER_ADAMW || o.optimizer > MFT_OPTIMIZER_ADAMW_8BIT) {
    throw BadArgument("optimizer: not an mft_optimizer");
  }
  mft::TrainConfig c;
  c.steps = o.steps;
  c.seq_len = o.seq_len;
  c.batch_size = o.batch_size;
  c.grad_accum = o.grad_accum;
  c.lr = o.lr;
  c.cosine = o.cosine != 0;
  c.warmup_steps = o.warmup_steps;
  c.weight_decay = o.weight_decay;
  c.max_grad_norm = o.max_grad_norm;
  c.skip_unselected = o.skip_unselected != 0;
  c.schedule.kind = static_cast<mft::Schedule::Kind>(o.schedule);
  c.schedule.selection = static_cast<mft::Schedule::Selection>(o.selection);
  c.schedule.ratio = o.ratio;
  if (o.suffix_depths != nullptr) {
    c.schedule.suffix_depths.assign(o.suffix_depths, o.suffix_depths + o.suffix_depths_count);
  }
  c.schedule.seed = o.seed;
  c.seed = o.seed;
  c.budget = o.budget;
  c.backward = static_cast<mft::Backward>(o.backward);
  c.optimizer = static_cast<mft::Optimizer>(o.optimizer);
  c.spill_folder = or_empty(o.spill_folder);
  return c;
}

}  // namespace

const char* mft_last_error(void) { return last_error; }

mft_train_options mft_train_options_default(void) {
  const mft::TrainConfig c;
  mft_train_options o{};
  o.struct_size = sizeof(o);
  o.steps = c.steps;
  o.seq_len = c.seq_len;
  o.batch_size = c.batch_size;
  o.grad_accum = c.grad_accum;
  o.lr = c.lr;
  o.cosine = c.cosine;
  o.warmup_steps = c.warmup_steps;
  o.weight_decay = c.weight_decay;
  o.max_grad_norm = c.max_grad_norm;
  o.schedule = static_cast<mft_schedule>(c.schedule.kind);
  o.selection = static_cast<mft_selection>(c.schedule.selection);
  o.ratio = c.schedule.ratio;
  o.skip_unselected = c.skip_unselected;
  o.seed = c.seed;
  o.budget = c.budget;
  o.backward = static_cast<mft_backward>(c.backward);
  o.optimizer = static_cast<mft_optimizer>(c.optimizer);
  return o;
}

mft_status mft_trainer_open(const char* bundle_folder, const char* token_file, const char* adapter_folder,
                            const mft_train_options* options, mft_trainer** trainer) {
  return guarded([&] {
    require(trainer, "trainer");
    *trainer = nullptr;
    require_path(bundle_folder, "bundle_folder");
    require_path(token_file, "token_file");
    require_options(options, "mft_train_options_default()");
    *trainer = new mft_trainer(bundle_folder, token_file, or_empty(adapter_folder), train_config(*options));
  });
}

void mft_trainer_close(mft_trainer* trainer) { delete trainer; }

mft_status mft_trainer_step(mft_trainer* trainer, mft_step_result* result) {
  return guarded([&] {
    require(trainer, "trainer");
    if (trainer->trainer.steps_done() >= trainer->steps) fail("all ", trainer->steps, " steps are done");
    const mft::StepResult r = trainer->trainer.step(trainer->data);
    if (result != nullptr) *result = {r.step, r.loss, r.lr, r.grad_norm, r.tokens};
  });
}

int64_t mft_trainer_steps_done(const mft_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->trainer.steps_done();
}

uint64_t mft_trainer_planned_bytes(const mft_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->trainer.plan().total();
}

mft_status mft_trainer_save_checkpoint(const mft_trainer* trainer, const char* folder) {
  return guarded([&] {
    require(trainer, "trainer");
    require_path(folder, "folder");
    mft::make_folder(folder);
    trainer->trainer.save_checkpoint(folder, trainer->data);
  });
}

mft_status mft_trainer_save_adapter(const mft_trainer* trainer, const char* folder) {
  return guarded([&] {
    require(trainer, "trainer");
    require_path(folder, "folder");
    mft::make_folder(folder);
    const mft::Model& model = trainer->model;
    mft::save_adapter(folder, model.bundle(), model.layout(), model.parameters());
  });
}

mft_status mft_trainer_resume(mft_trainer* trainer, const char* folder) {
  return guarded([&] {
    require(trainer, "trainer");
    require_path(folder, "folder");
    trainer->trainer.resume(folder, trainer->data);
  });
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

mft_status mft_evaluate(mft_bundle* bundle, const char* adapter_folder, const char* token_file,
                        mft_evaluation* result) {
  return guarded([&] {
    require(bundle, "bundle");
    require_path(token_file, "token_file");
    require(result, "result");
    mft::Model& model = bundle->model;
    const mft::TokenFile data(token_file, model.bundle().vocab_size);
    model.prepare(or_empty(adapter_folder), data.longest());
    const auto [loss, targets] = mft::evaluate(model, data, [](int64_t, int64_t) {});
    if (targets == 0) fail(data.path(), ": no targets to evaluate");
    *result = {loss / static_cast<double>(targets), targets};
  });
}

mft_generate_options mft_generate_options_default(void) { return {sizeof(mft_generate_options), 100, 0.0, 0}; }

mft_status mft_generate(mft_bundle* bundle, const char* adapter_folder, const int64_t* prompt, size_t prompt_count,
                        const mft_generate_options* options, mft_token_callback on_token, void* user_data) {
  return guarded([&] {
    require(bundle, "bundle");
    require(prompt, "prompt");
    require_options(options, "mft_generate_options_default()");
    if (on_token == nullptr) throw BadArgument("on_token: must not be NULL");
    mft::Model& model = bundle->model;
    const int64_t count = static_cast<int64_t>(prompt_count);
    if (count < 1 || count > model.bundle().max_seq_len) {
      fail("prompt of ", prompt_count, " tokens: must have 1 to ", model.bundle().max_seq_len,
           ", the bundle's maximum");
    }
    std::vector<int64_t> tokens(prompt, prompt + prompt_count);
    for (int64_t token : tokens) {
      if (token < 0 || token >= model.bundle().vocab_size) fail("prompt: token ", token, " is not in the vocabulary");
    }
    model.prepare(or_empty(adapter_folder), count);
    mft::Generator generator(model, count, options->temperature, options->seed);
    const int64_t most = std::min(options->max_tokens, model.bundle().max_seq_len - count);
    for (int64_t i = 0; i < most; ++i) {
      const int64_t token = generator.next(tokens);
      if (on_token(token, user_data) != 0) return;
      tokens = {token};
    }
  });
}

mft_memory mft_process_memory(void) {
  const mft::ProcessMemory memory = mft::process_memory();
  return {memory.rss, memory.anon, memory.peak_rss};
}
