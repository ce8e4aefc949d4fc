#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/option.h"
#include "runtime/bundle/adapter.h"
#include "runtime/config/compute_choice.h"
#include "runtime/config/data_config.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/schedule/schedule.h"

namespace mft {

/// How a selected unit's backward gets the activations of the forward. auto selects the fastest way within the budget,
/// and recomputation without a budget.
enum class Backward { kAuto, kStore, kRecompute };
inline std::vector<const char*> names(Backward) { return {"auto", "store", "recompute"}; }

enum class Optimizer { kAdamW, kAdamW8bit };
inline std::vector<const char*> names(Optimizer) { return {"adamw", "adamw8bit"}; }

/// How AdamW updates the layers that a step did not select.
enum class Unselected { kMomentum, kSkip };
inline std::vector<const char*> names(Unselected) { return {"momentum", "skip"}; }

/// The learning rate after the warm-up: cosine or linear decay to 0, or constant.
enum class LrScheduler { kCosine, kLinear, kConstant };
inline std::vector<const char*> names(LrScheduler) { return {"cosine", "linear", "constant"}; }

/// The loss function: cross-entropy of the targets, one of those of preference pairs (train/pair_losses.h), or KTO on
/// single answers with a label (train/kto.h).
enum class Loss { kSft, kDpo, kIpo, kOrpo, kSimpo, kKto };
inline std::vector<const char*> names(Loss) { return {"sft", "dpo", "ipo", "orpo", "simpo", "kto"}; }

/// Whether a loss learns from pairs of answers, chosen and rejected.
inline bool learns_from_pairs(Loss loss) { return loss != Loss::kSft && loss != Loss::kKto; }

/// Whether a loss compares with the model without adapter, the reference.
inline bool needs_reference(Loss loss) { return loss == Loss::kDpo || loss == Loss::kIpo || loss == Loss::kKto; }

inline std::vector<const char*> names(Compute) { return {"float32", "int8"}; }

/// The arithmetic of linear layers and attention. auto selects int8 if the CPU has dot products of bytes.

/// Options of a training run. All front ends get their names, texts and defaults from `train_options`.
struct TrainConfig {
  int64_t seq_len = 256;
  int64_t batch_size = 1;  // sequences per micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  Schedule schedule;
  Backward backward = Backward::kAuto;
  LoraTrain lora_train = LoraTrain::kBoth;
  Optimizer optimizer = Optimizer::kAdamW;
  double max_grad_norm = 1.0;  // 0: no clipping
  Loss loss = Loss::kSft;
  int64_t eval_every = 0;  // steps between validations, 0: none
  uint64_t budget = 0;     // bytes, 0: none
  std::vector<int64_t> stored_units;
  int64_t mlp_tokens = 0;  // 0: set by the budget
  int64_t threads = 0;     // 0: all cores
  ComputeChoice compute = ComputeChoice::kAuto;

  int64_t steps = 100;
  double epochs = 0;  // if above 0, replaces steps
  NumberOrAuto lr;    // peak; auto: `resolve` chooses
  LrScheduler lr_scheduler = LrScheduler::kCosine;
  std::optional<int64_t> warmup_steps;  // if not set, `resolve` chooses
  double warmup_ratio = 0;              // if above 0, replaces warmup_steps
  double weight_decay = 0.0;
  Unselected unselected = Unselected::kMomentum;
  bool cache_prefix = false;
  double beta = 0.1;
  double label_smoothing = 0;
  double simpo_gamma = 0.5;
  std::optional<double> sft_weight;  // if not set, `sft_share` chooses
  double proximal_mu = 0;            // 0: no proximal term
  int64_t save_every = 100;
  int64_t patience = 0;  // validations; 0: no early stopping
  int64_t seed = 0;
  DataConfig data;
  std::string arithmetic;

  // Set by the run, not options.
  std::string offload_folder;  // folder for offloaded checkpoints; empty: no offloading
  bool resumed = false;        // continues from a checkpoint, whose options it must keep

  int64_t tokens() const { return batch_size * seq_len; }  // maximum of a micro-batch

  /// The weight of the cross-entropy of chosen answers beside a loss of preferences. It is a part of ORPO.
  double sft_share() const { return sft_weight.value_or(loss == Loss::kOrpo ? 1 : 0); }

  /// Whether a unit is updated directly after its backward, so that only one unit's gradients exist at a time. That is
  /// possible if neither accumulation nor a global norm needs all gradients.
  bool immediate_update() const { return grad_accum == 1 && max_grad_norm == 0; }
};

/// All options of a run. A new option needs a member above and a line in the .cpp file.
const std::vector<Option<TrainConfig>>& train_options();

/// Returns the configuration for options given by name. Throws Error, with the option and the value.
TrainConfig make_train_config(const std::map<std::string, std::string>& given);

/// Returns {name: text} of all options. `make_train_config` converts it back to the same configuration.
std::map<std::string, std::string> options_of(const TrainConfig& config);

/// Converts epochs and ratios to numbers of steps, for data with this number of sequences. Replaces auto: by a learning
/// rate for the bundle's `base_lr` (config/auto_lr.h), and by this machine's arithmetic. Throws Error if a value is out
/// of range.
void resolve(TrainConfig& config, int64_t sequences, double base_lr);

/// Throws Error, with the option, if a value is out of range or a micro-batch is longer than `max_seq_len`.
void check(const TrainConfig& config, int64_t max_seq_len);

}  // namespace mft
