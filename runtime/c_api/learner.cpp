#include "runtime/learn/learner.h"

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/c_api/call.h"
#include "runtime/model/model.h"

struct mft_learner {
  mft::Model model;
  std::string folder;
  mft::StopRequest stop;
};

namespace {

using mft::BadArgument;
using mft::guarded;
using mft::require;
using mft::require_options;
using mft::require_path;

/// Passes events on. A callback that asks for the end cancels the call.
mft::EventSink events_to(mft_learner* learner, mft_event_callback on_event, void* user_data) {
  return [=](const mft::Event& event) {
    if (on_event != nullptr && on_event(mft::text_of(event).c_str(), user_data) != 0) learner->stop.cancel();
  };
}

}  // namespace

mft_status mft_learner_open(const char* bundle_folder, const char* folder, mft_learner** learner) {
  return guarded([&] {
    require(learner, "learner");
    *learner = nullptr;
    require_path(bundle_folder, "bundle_folder");
    require_path(folder, "folder");
    *learner = new mft_learner{mft::Model(bundle_folder), folder, {}};
  });
}

void mft_learner_close(mft_learner* learner) { delete learner; }

mft_status mft_learner_learn(mft_learner* learner, const char* rows_jsonl, const mft_options* options,
                             mft_event_callback on_event, void* user_data) {
  return guarded([&] {
    require(learner, "learner");
    require_path(rows_jsonl, "rows_jsonl");
    require_options(options, mft_options::kLearn);
    const auto call = learner->model.begin_call();
    learner->stop.clear();
    if (!mft::file_exists(rows_jsonl)) mft::fail(rows_jsonl, ": no such file");
    const mft::LearnConfig config = mft::make_learn_config(mft::learner_options(learner->folder, options->given));
    mft::learn(learner->folder, learner->model, rows_jsonl, config, events_to(learner, on_event, user_data),
               learner->stop);
  });
}

mft_status mft_learner_forget(mft_learner* learner, const char* const* ids, size_t count, mft_event_callback on_event,
                              void* user_data) {
  return guarded([&] {
    require(learner, "learner");
    if (count > 0) require(ids, "ids");
    std::vector<std::string> forgotten;
    for (size_t i = 0; i < count; ++i) {
      require(ids[i], "an id");
      forgotten.emplace_back(ids[i]);
    }
    const auto call = learner->model.begin_call();
    learner->stop.clear();
    mft::forget(learner->folder, learner->model, forgotten, events_to(learner, on_event, user_data), learner->stop);
  });
}

mft_status mft_learner_roll_back(mft_learner* learner, int64_t version) {
  return guarded([&] {
    require(learner, "learner");
    mft::roll_back(learner->folder, version);
  });
}

mft_status mft_learner_state(const mft_learner* learner, mft_event_callback on_event, void* user_data) {
  return guarded([&] {
    require(learner, "learner");
    if (on_event == nullptr) throw BadArgument("on_event: must not be NULL");
    on_event(mft::text_of(mft::describe(mft::read_learner_state(learner->folder))).c_str(), user_data);
  });
}

void mft_learner_cancel(mft_learner* learner) {
  if (learner != nullptr) learner->stop.cancel();
}
