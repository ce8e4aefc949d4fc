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

/// Asks a run to end after the step in progress, saved. May be called from any thread and from a signal handler.
class StopRequest {
 public:
  void cancel() noexcept { value_ = kCancelled; }
  void signal(int number) noexcept { value_ = number; }
  /// Why to stop; empty: go on.
  std::string reason() const;

 private:
  static constexpr int kCancelled = -1;
  std::atomic<int> value_{0};
  static_assert(std::atomic<int>::is_always_lock_free);
};

/// What `train` throws where a run ended early and is saved.
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
};

/// What a run that resumes from `folder` is configured with: what is given and, of all other options that decide its
/// result, what the checkpoint says, whatever their defaults are by now.
std::map<std::string, std::string> resumed_options(const std::string& folder, std::map<std::string, std::string> given);

/// One training run from beginning, or checkpoint, to end: the policy around the trainer's steps, the same for every
/// front end. It validates every `eval_every` steps and at the end, keeps the best adapter in `out`/best, saves every
/// `save_every` steps and at the end, ends early where `patience` validations brought nothing, and ends saved where it
/// is asked to stop or the memory limit is lowered below what it needs.
class Run {
 public:
  /// Plans, and gives the "plan" event to `emit`, which hears all that follow too. `model` must outlive the run.
  Run(Model& model, const TrainConfig& config, const RunPaths& paths, EventSink emit);
  ~Run();

  /// Makes a step, and what is due after it. Returns whether there is another one; where not, "done" was the last
  /// event. Throws Stopped where it was asked to stop: saved, after a first step at least. After that, and any other
  /// Error, the run is of no more use.
  bool step(const StopRequest& stop);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The "plan" event of a configuration.
Event describe(const Plan& plan, const TrainConfig& config);

/// One line of JSON; what is no UTF-8 in it, of a path say, is replaced.
std::string text_of(const Event& event);

double megabytes(uint64_t bytes);

}  // namespace mft
