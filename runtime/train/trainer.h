#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/config/train_config.h"
#include "runtime/model/model.h"
#include "runtime/model/moments.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/selectable.h"
#include "runtime/train/loss.h"
#include "runtime/train/offload_file.h"
#include "runtime/train/prefix_cache.h"

namespace mft {

struct StepResult {
  int64_t step;      // counts from 1
  double loss;       // mean over the step's targets, or pairs
  double grad_norm;  // of the selected units, before clipping
  double lr;
  int64_t tokens;
  int64_t backward_units;
  std::vector<bool> trained;  // which units were
  LossSum sums;
};

/// A checkpoint's settings that decide over the last bits of what follows; a resumed run must use them again.
struct Resolved {
  std::vector<int64_t> stored_units;  // empty where it does not matter
  int64_t mlp_tokens = 0;
  int64_t threads = 0;
  ComputeChoice compute = ComputeChoice::kAuto;
  std::string arithmetic;
};

/// What validations found so far: (step, loss).
using Evaluations = std::vector<std::pair<int64_t, double>>;

/// The training loop: forward through all units, backward through the selected ones, AdamW on the LoRA parameters.
class Trainer {
 public:
  /// Plans the memory, refuses where the budget is too small, then allocates everything. `adapter` is the folder to
  /// start from, empty for the bundle's initial adapter. The model is the trainer's alone until it goes.
  /// `sequences` of data, whose order is made now, for the plan counts what the process holds already.
  Trainer(Model& model, const TrainConfig& config, const std::string& adapter, int64_t sequences = 1);

  /// Loss and gradient sums of one micro-batch, for what is selected: a flag for each layer, or each unit where the
  /// schedule drops units. The first of a step overwrites the gradients, others add to them. Where updates are
  /// immediate, `on_gradients(unit)` comes after each unit's backward, whose gradients are lost with the next one's.
  LossSum accumulate(const Batch& batch, const std::vector<bool>& selected, bool first,
                     const std::function<void(size_t)>& on_gradients = {});

  /// DropBP's sensitivity of each unit: by how much the norms of all LoRA gradients of this micro-batch change where it
  /// alone is dropped, squared and summed. Takes about as long as half as many steps as there are units.
  std::vector<double> measure_sensitivities(const Batch& batch);

  /// Throws Error where `data` is not what this run was configured for.
  void check_data(const TokenFile& data) const;

  /// One optimizer step on the next `grad_accum` micro-batches of `data`. Throws Error past the last step.
  StepResult step(const TokenFile& data);

  /// The loss of all of `data`, in memory that the plan has anyway; weights in the data have no part in it.
  LossSum validate(const TokenFile& data);

  /// Writes `checkpoint.safetensors` into `folder`: everything that `resume` needs.
  void save_checkpoint(const std::string& folder, const TokenFile& data) const;
  /// Continues from that file. Throws Error naming what differs where it belongs to another run.
  void resume(const std::string& folder, const TokenFile& data);
  /// What a run that resumes from there must be configured with. Throws Error where there is no checkpoint.
  static Resolved read_resolved(const std::string& folder);
  /// {name: text} of the options that decided its results. Throws Error where there is no checkpoint.
  static std::map<std::string, std::string> read_options(const std::string& folder);
  Resolved resolved() const;
  /// The arithmetic of what was resumed, empty where nothing was.
  const std::string& begun_with() const { return begun_with_; }

  const Plan& plan() const { return plan_; }
  int64_t steps_done() const { return static_cast<int64_t>(losses_.size()); }
  const std::vector<double>& losses() const { return losses_; }
  /// Or pairs, of all steps so far.
  int64_t targets_seen() const { return targets_seen_; }
  /// Saved with the checkpoint, and the SHA-256 of the data that they are of.
  Evaluations evaluations;
  std::string validated_on;
  /// Of each unit, empty until they are measured.
  const std::vector<double>& sensitivities() const { return sensitivities_; }
  const Schedule& schedule() const { return config_.schedule; }
  /// How often each unit ran its backward.
  const std::vector<int64_t>& backward_runs() const { return backward_runs_; }
  LoraTrain lora_train() const { return config_.lora_train; }
  /// The unit's LoRA parameters that are trained.
  AdapterLayout::Range trained(size_t unit) const { return model_.layout().trained(unit, config_.lora_train); }
  /// Where the last `accumulate` left the gradients of those; null if the unit was not selected.
  const float* gradients(size_t unit) const {
    return gradient_offsets_[unit] < 0 ? nullptr : gradients_.floats() + gradient_offsets_[unit];
  }
  /// The large blocks of anonymous memory, under the names of the plan's components.
  std::vector<std::pair<std::string, const Buffer*>> buffers() const;
  Model& model() { return model_; }
  const Model& model() const { return model_; }

 private:
  /// What a unit keeps from forward to backward.
  struct Kept {
    bool selected = false;        // it is trained
    bool runs = false;            // its backward
    float* checkpoint = nullptr;  // its input
    int64_t offloaded = -1;       // or the input's place in the offload file
    std::byte* saved = nullptr;   // its activations
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
  /// The output of the lowest `units` units, which are frozen, from the cache as far as it is there. `out` is for them
  /// all; units before the last give theirs to the two buffers of `activations_` in turn.
  void pass_prefix(const Batch& batch, size_t units, float* out);
  /// The losses without the adapter, where the loss needs them.
  void reference(const Batch& batch);
  /// The batch's loss and its gradient to x.
  LossSum head(const Batch& batch, const float* x, float* dx, size_t next);
  /// And the drop rates that follow; none where they are empty.
  void use_sensitivities(std::vector<double> sensitivities);
  uint64_t offload_offset(int64_t slot) const {
    return static_cast<uint64_t>(slot) * model_.activation_bytes(config_.tokens());
  }
  std::vector<Kept> keep(const std::vector<bool>& selected, int64_t tokens);
  void keep_start();
  /// Adds the gradient of FedProx's term (arXiv 1812.06127), mu (w - w at the start), to the gradients of a selected
  /// unit, which are sums over `count` targets or pairs.
  void add_proximal(size_t unit, int64_t count);
  void update(size_t unit, const float* gradients, double lr, double gradient_scale);

  Model& model_;
  Model::Claim claim_;
  TrainConfig config_;
  const Selectable selectable_;
  Plan plan_;
  Moments moments_;
  Buffer start_;            // what is trained as it was before the first step, for the proximal term
  Buffer gradients_;        // of the selected units, or of one where updates are immediate
  Buffer spare_gradients_;  // what a call adds to them, or nobody wants
  Buffer optimizer_;        // AdamW's moments
  Buffer checkpoints_;      // inputs of units whose backward runs
  Buffer saved_;            // activations of stored units
  Buffer activations_;      // two that units read and write in turn; one for what was offloaded
  OffloadFile offload_;
  std::optional<PrefixCache> prefix_;      // from the first step on, where wanted
  std::vector<int64_t> gradient_offsets_;  // of each unit in gradients_, -1 where it has none
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
  std::vector<float> reference_losses_;  // of the same tokens, without the adapter
};

}  // namespace mft
