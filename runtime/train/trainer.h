#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/safetensors.h"
#include "runtime/bundle/token_file.h"
#include "runtime/config/train_config.h"
#include "runtime/model/model.h"
#include "runtime/model/moments.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/selectable.h"
#include "runtime/train/comparison.h"
#include "runtime/train/loss.h"
#include "runtime/train/offload_file.h"
#include "runtime/train/prefix_cache.h"

namespace mft {

struct StepResult {
  int64_t step;      // counts from 1
  double loss;       // mean over the step's targets, pairs or rows
  double grad_norm;  // of the selected units, before clipping
  double lr;
  int64_t tokens;
  int64_t backward_units;
  std::vector<bool> trained;  // which units were
  LossSum sums;
};

/// Settings of a checkpoint that decide the last bits of later steps. A resumed run must use them again.
struct Resolved {
  std::vector<int64_t> stored_units;  // empty if it does not matter
  int64_t mlp_tokens = 0;
  int64_t threads = 0;
  ComputeChoice compute = ComputeChoice::kAuto;
  std::string arithmetic;
};

/// The checkpoint's file in a run's folder.
inline constexpr const char* kCheckpointFile = "/checkpoint.safetensors";

/// The moments' file.
inline constexpr const char* kMomentsFile = "/moments.safetensors";

/// The validation losses so far: (step, loss).
using Evaluations = std::vector<std::pair<int64_t, double>>;

/// The training loop: forward through all units, backward through the selected ones, AdamW on the LoRA parameters.
class Trainer {
 public:
  /// Plans the memory, fails if the budget is too small, and allocates everything. `adapter` is the folder to start
  /// from; empty: the bundle's initial adapter. Only this trainer may use the model while it lives. `sequences` is the
  /// number of sequences in the data. Their order is drawn now, because the plan counts what the process holds already.
  Trainer(Model& model, const TrainConfig& config, const std::string& adapter, int64_t sequences = 1);

  /// Loss and gradient sums of one micro-batch. `selected` has a flag for each layer, or for each unit if the schedule
  /// drops units. The first micro-batch of a step overwrites the gradients, and others add to them.
  /// `on_gradients(unit)` is called after the backward of each selected unit. With immediate updates the next unit
  /// overwrites its gradients.
  LossSum accumulate(const Batch& batch, const std::vector<bool>& selected, bool first,
                     const std::function<void(size_t)>& on_gradients = {});

  /// DropBP's sensitivity of each unit: the sum of the squared changes in the norms of all LoRA gradients of this
  /// micro-batch if this unit alone is dropped. Takes the time of about half as many steps as there are units.
  std::vector<double> measure_sensitivities(const Batch& batch);

  /// Throws Error if `data` does not fit the configuration of this run.
  void check_data(const TokenFile& data) const;

  /// One optimizer step on the next `grad_accum` micro-batches of `data`. Throws Error past the last step.
  StepResult step(const TokenFile& data);

  /// The loss of all of `data`, without its row weights. Needs no memory beyond the plan.
  LossSum validate(const TokenFile& data);

  /// Writes `checkpoint.safetensors` to `folder`, with everything that `resume` needs.
  void save_checkpoint(const std::string& folder, const TokenFile& data) const;
  /// Continues from that file. Throws Error if it belongs to another run, and names the difference.
  void resume(const std::string& folder, const TokenFile& data);
  /// Writes AdamW's moments to `folder`, for `take_moments` of a later run that goes on from this one's adapter.
  void save_moments(const std::string& folder) const;
  /// Begins with them instead of zeros. Returns false if there are none there, or they are of other options than this
  /// run's. Throws Error if the file is damaged.
  bool take_moments(const std::string& folder);
  /// The settings that a run must use to resume from there. Throws Error if there is no checkpoint.
  static Resolved read_resolved(const std::string& folder);
  /// {name: text} of the options that decided its results. Throws Error where there is no checkpoint.
  static std::map<std::string, std::string> read_options(const std::string& folder);
  Resolved resolved() const;
  /// The arithmetic of the resumed checkpoint; empty if the run was not resumed.
  const std::string& begun_with() const { return begun_with_; }

  const Plan& plan() const { return plan_; }
  int64_t steps_done() const { return static_cast<int64_t>(losses_.size()); }
  const std::vector<double>& losses() const { return losses_; }
  /// Targets, pairs or rows of all steps so far.
  int64_t targets_seen() const { return targets_seen_; }
  /// Validations, which checkpoints hold, and the SHA-256 of their data.
  Evaluations evaluations;
  std::string validated_on;
  /// One number for each unit; empty until they are measured.
  const std::vector<double>& sensitivities() const { return sensitivities_; }
  const Schedule& schedule() const { return config_.schedule; }
  /// How often each unit ran its backward.
  const std::vector<int64_t>& backward_runs() const { return backward_runs_; }
  LoraTrain lora_train() const { return config_.lora_train; }
  /// The range of the unit's LoRA parameters that are trained.
  AdapterLayout::Range trained(size_t unit) const { return model_.layout().trained(unit, config_.lora_train); }
  /// Their gradients after the last `accumulate`; null if the unit was not selected.
  const float* gradients(size_t unit) const {
    return gradient_offsets_[unit] < 0 ? nullptr : gradients_.floats() + gradient_offsets_[unit];
  }
  /// The large blocks of anonymous memory by the names of the plan's components.
  std::vector<std::pair<std::string, const Buffer*>> buffers() const;
  Model& model() { return model_; }
  const Model& model() const { return model_; }

 private:
  /// How a unit takes part in a micro-batch, and where it keeps what its backward needs.
  struct Kept {
    bool selected = false;        // trained
    bool runs = false;            // its backward runs
    float* checkpoint = nullptr;  // place of its input in memory
    int64_t offloaded = -1;       // or slot of its input in the offload file
    std::byte* saved = nullptr;   // stored activations
  };

  // A step (trainer.cpp).
  /// The order of the file's sequences and, if configured, the cache of the frozen layers' output.
  void open_data(const TokenFile& data);
  /// Reads micro-batch `micro` of the current step into `batch_`.
  void next_batch(const TokenFile& data, int64_t micro);
  /// The same for the step's first micro-batch that has a target.
  void next_batch_with_target(const TokenFile& data);
  void must_be_finite(double value) const;
  /// What torch.nn.utils.clip_grad_norm_ multiplies the gradients by.
  double clip_factor(double grad_norm) const;
  /// Updates the trained units, unless they were updated at once, and by momentum the others, if they move.
  void update_units(const StepResult& result, double gradient_scale);

  // A micro-batch (micro_batch.cpp).
  size_t activation_size(const Batch& batch) const {
    return static_cast<size_t>(batch.size() * model_.bundle().hidden_size);
  }
  /// Of the two buffers that units read and write in turn, the one for the input of `unit`.
  float* buffer(const Batch& batch, size_t unit) const;
  /// Where the input of `unit` lies: in its checkpoint if it has one, else in the buffer.
  float* input_of(const Batch& batch, const std::vector<Kept>& kept, size_t unit) const;
  /// The next unit below whose backward runs; SIZE_MAX if there is none.
  static size_t next_below(const std::vector<Kept>& kept, size_t unit);
  /// Runs all units. Returns the last one's output.
  const float* forward(const Batch& batch, const std::vector<Kept>& kept);
  /// Runs the backward of units from the top. A unit whose backward does not run passes the gradient on unchanged.
  /// Below the lowest selected unit nothing needs a gradient.
  void backward(const Batch& batch, const std::vector<Kept>& kept, bool first,
                const std::function<void(size_t)>& on_gradients);
  /// An input that was offloaded.
  const float* read_back(const Batch& batch, int64_t slot);
  /// Computes the output of the lowest `units` units, which are frozen, into `out`. Reads what the cache has, and
  /// writes the rest to it.
  void pass_prefix(const Batch& batch, size_t units, float* out);
  /// Computes what the loss compares the batch's rows with.
  void compare_rows(const Batch& batch);
  /// The batch's loss and its gradient to x.
  LossSum head(const Batch& batch, const float* x, float* dx, size_t next);
  /// Takes sensitivities, and computes drop rates from them unless they are empty.
  void use_sensitivities(std::vector<double> sensitivities);
  uint64_t offload_offset(int64_t slot) const {
    return static_cast<uint64_t>(slot) * model_.activation_bytes(config_.tokens());
  }
  /// Throws Error if the checkpoint is of another run than this trainer's. Returns the arithmetic it was made with.
  std::string check_same_run(const SafeTensors& file, const std::string& folder, const TokenFile& data) const;
  std::vector<Kept> keep(const std::vector<bool>& selected, const Batch& batch);
  void keep_start();
  /// Adds the gradient of FedProx's term (arXiv 1812.06127), mu (w - w at the start), to the gradients of a selected
  /// unit, which are sums over `count` targets, pairs or rows.
  void add_proximal(size_t unit, int64_t count);
  void update(size_t unit, const float* gradients, double lr, double gradient_scale);

  Model& model_;
  Model::Claim claim_;
  TrainConfig config_;
  const Selectable selectable_;
  Plan plan_;
  Moments moments_;
  Buffer start_;            // trained parameters before the first step, for the proximal term
  Buffer gradients_;        // of the selected units, or of one unit with immediate updates
  Buffer spare_gradients_;  // gradients of a call that are added to these, or discarded
  Buffer optimizer_;        // AdamW's moments
  Buffer checkpoints_;      // inputs of units whose backward runs
  Buffer saved_;            // activations of stored units
  Buffer activations_;      // two that units read and write in turn, and one for offloaded inputs
  OffloadFile offload_;
  const TokenFile* data_ = nullptr;           // of the current step; null if its tokens are from no file
  std::optional<PrefixCache> prefix_;         // from the first step on, if configured
  std::optional<ReferenceCache> references_;  // the same, if the loss needs them and epochs repeat
  std::optional<ReferenceCache> valid_references_;
  std::vector<int64_t> gradient_offsets_;  // of each unit in gradients_; -1: none
  std::vector<size_t> start_offsets_;      // of each unit in start_
  std::vector<int64_t> unit_steps_;        // AdamW's step count of each unit
  std::vector<int64_t> backward_runs_;
  std::string begun_with_;
  std::vector<double> losses_;
  int64_t targets_seen_ = 0;
  std::vector<double> sensitivities_;
  TokenOrder order_;
  Batch batch_;
  std::vector<float> losses_of_tokens_;
  Comparison compared_;
};

}  // namespace mft
