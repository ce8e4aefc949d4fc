#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/option.h"
#include "runtime/bundle/adapter.h"
#include "runtime/config/data_config.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/schedule/schedule.h"

namespace mft {

/// How a selected unit's backward gets what the forward computed; auto: whichever is fastest within the budget, and
/// recompute where there is none.
enum class Backward { kAuto, kStore, kRecompute };
inline std::vector<const char*> names(Backward) { return {"auto", "store", "recompute"}; }

enum class Optimizer { kAdamW, kAdamW8bit };
inline std::vector<const char*> names(Optimizer) { return {"adamw", "adamw8bit"}; }

/// What AdamW does with the layers that a step did not select.
enum class Unselected { kMomentum, kSkip };
inline std::vector<const char*> names(Unselected) { return {"momentum", "skip"}; }

/// The learning rate after the warm-up: cosine or linear decay to 0, or constant.
enum class LrScheduler { kCosine, kLinear, kConstant };
inline std::vector<const char*> names(LrScheduler) { return {"cosine", "linear", "constant"}; }

/// What is minimised: the cross-entropy of the targets, or DPO's loss of preference pairs (arXiv 2305.18290).
enum class Loss { kSft, kDpo };
inline std::vector<const char*> names(Loss) { return {"sft", "dpo"}; }

inline std::vector<const char*> names(Compute) { return {"float32", "int8"}; }

/// What linear layers are to compute with; auto: int8 where the CPU has dot products of bytes.
enum class ComputeChoice { kAuto, kFloat32, kInt8 };
inline std::vector<const char*> names(ComputeChoice) { return {"auto", "float32", "int8"}; }

/// Options of a training run. Their names, texts and defaults reach every front end through `train_options`.
struct TrainConfig {
  int64_t seq_len = 256;
  int64_t batch_size = 1;  // sequences a micro-batch
  int64_t grad_accum = 1;  // micro-batches a step
  Schedule schedule;
  Backward backward = Backward::kAuto;
  LoraTrain lora_train = LoraTrain::kBoth;
  Optimizer optimizer = Optimizer::kAdamW;
  double max_grad_norm = 1.0;  // 0: no clipping
  Loss loss = Loss::kSft;
  int64_t eval_every = 0;  // steps between validations, 0: none
  uint64_t budget = 0;     // bytes, 0: none
  std::vector<int64_t> stored_units;
  int64_t mlp_tokens = 0;  // 0: by the budget
  int64_t threads = 0;     // 0: all cores
  ComputeChoice compute = ComputeChoice::kAuto;

  int64_t steps = 100;
  double epochs = 0;  // in place of steps where above 0
  double lr = 1e-3;   // with the warm-up and cosine decay: what docs/quality.md measured
  LrScheduler lr_scheduler = LrScheduler::kCosine;
  std::optional<int64_t> warmup_steps;  // none: `resolve` chooses
  double warmup_ratio = 0;              // in place of warmup_steps where above 0
  double weight_decay = 0.0;
  Unselected unselected = Unselected::kMomentum;
  bool cache_prefix = false;
  double beta = 0.1;
  double proximal_mu = 0;  // 0: no proximal term
  int64_t save_every = 100;
  int64_t patience = 0;  // validations, 0: never ends early
  int64_t seed = 0;
  DataConfig data;
  std::string arithmetic;

  std::string offload_folder;  // where checkpoints may be offloaded to; empty: nowhere. Set by the run, no option

  int64_t tokens() const { return batch_size * seq_len; }  // of a micro-batch, at most

  /// Whether a unit's update follows right upon its backward, so that one unit's gradients are all there ever are:
  /// where neither accumulation nor a global norm needs them together.
  bool immediate_update() const { return grad_accum == 1 && max_grad_norm == 0; }
};

/// Every option of a run. What a new one needs: its member above, and a line here.
const std::vector<Option<TrainConfig>>& train_options();

/// The configuration of the options given by name. Throws Error naming option and value.
TrainConfig make_train_config(const std::map<std::string, std::string>& given);

/// {name: text} of all that describes the run: what `make_train_config` makes the same configuration of.
std::map<std::string, std::string> options_of(const TrainConfig& config);

/// Puts numbers of steps in the place of shares of an epoch and of the run, for data of so many sequences, and what
/// this machine computes with in the place of auto. Throws Error where a value is out of range.
void resolve(TrainConfig& config, int64_t sequences);

/// Throws Error naming the option where a value is out of range, or a micro-batch longer than `max_seq_len`.
void check(const TrainConfig& config, int64_t max_seq_len);

}  // namespace mft
