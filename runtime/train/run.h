#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/train/trainer.h"

namespace mft {

/// What happens in a run, one JSON object each (docs/reference/events.md): plan, step, eval, saved, stopped, done.
using Event = nlohmann::ordered_json;
/// Of the events' keys and meanings, in "plan". 1, which said no version, had "spilled" for "offloaded".
constexpr int kEventsVersion = 2;
using EventSink = std::function<void(const Event&)>;

/// Asks a run to end after the current step, with a checkpoint. May be called from any thread and from a signal
/// handler.
class StopRequest {
 public:
  void cancel() noexcept { value_ = kCancelled; }
  void time_is_up() noexcept { value_ = kTimeIsUp; }
  void signal(int number) noexcept { value_ = number; }
  /// Takes the request back.
  void clear() noexcept { value_ = 0; }
  /// Why to stop; empty: not asked to stop.
  std::string reason() const;

 private:
  static constexpr int kCancelled = -1, kTimeIsUp = -2;
  std::atomic<int> value_{0};
  static_assert(std::atomic<int>::is_always_lock_free);
};

/// Thrown if a run ended early, with a checkpoint, or a night of learning, which then changed nothing.
class Stopped : public Error {
 public:
  using Error::Error;
};

/// Files and folders of a run.
struct RunPaths {
  std::string data;       // token file
  std::string valid;      // token file for validation; empty: none
  std::string adapter;    // folder to start from; empty: the bundle's own adapter
  std::string out = ".";  // for the adapter, the checkpoint and best/
  std::string trace;      // file for method calls (train/trace.h); empty: none
  bool resume = false;
  std::string moments;        // folder of AdamW's moments to begin with; empty, or none there: zeros
  bool keep_moments = false;  // writes them to `out` at the end
};

/// What a run that resumes from `folder` is configured with: what is given and, of all other options that decide its
/// result, what the checkpoint says, whatever their defaults are by now.
std::map<std::string, std::string> resumed_options(const std::string& folder, std::map<std::string, std::string> given);

/// One training run, from its start or a checkpoint to its end, the same for every front end. It validates every
/// `eval_every` steps and at the end, and keeps the best adapter in `out`/best. It writes checkpoints every
/// `save_every` steps and at the end. It ends early after `patience` validations without improvement. If it is asked to
/// stop, or the memory limit is lowered below its needs, it writes a checkpoint and ends.
class Run {
 public:
  /// Plans the memory. `emit` receives the "plan" event and all later ones. `model` must outlive the run.
  Run(Model& model, const TrainConfig& config, const RunPaths& paths, EventSink emit);
  ~Run();

  /// Makes a step, and the validation and the checkpoint that are due after it. Returns whether steps are left; if not,
  /// "done" was the last event. Throws Stopped if it was asked to stop, with a checkpoint, after the first step at the
  /// earliest. After that, and after any other Error, the run cannot be used any more.
  bool step(const StopRequest& stop);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The "plan" event of a configuration.
Event describe(const Plan& plan, const TrainConfig& config);

/// One line of JSON. Bytes that are not valid UTF-8, for example of a path, are replaced.
std::string text_of(const Event& event);

double megabytes(uint64_t bytes);

}  // namespace mft
