#include "runtime/core/plan.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/core/process_memory.h"

namespace mft {
namespace {

// What loading the methods, starting the threads and the C++ heap add after planning; measured, with a margin.
constexpr uint64_t kRuntimeGrowth = uint64_t{12} << 20;
constexpr uint64_t kMegabyte = 1000 * 1000;

}  // namespace

uint64_t Plan::total() const {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : components) sum += bytes;
  return sum;
}

Plan plan_training(const Model& model, const Schedule& schedule, int64_t tokens, bool accumulate, Backward backward,
                   uint64_t budget) {
  const uint64_t activation = static_cast<uint64_t>(tokens * model.bundle().hidden_size) * sizeof(float);
  const uint64_t adapter = model.layout().size * sizeof(float);
  const int64_t layers = model.bundle().num_layers;
  const uint64_t units_per_layer = model.bundle().units.size() / static_cast<uint64_t>(layers);
  uint64_t largest_unit = 0;
  for (size_t u = 0; u < model.layout().units.size(); ++u) {
    largest_unit = std::max<uint64_t>(largest_unit, model.layout().range(u).size() * sizeof(float));
  }
  Plan plan;
  plan.components = {
      {"program", process_memory().rss + kRuntimeGrowth},
      {"weights_window", model.weight_window_bytes()},
      {"lora", adapter},
      {"gradients", adapter + (accumulate ? largest_unit : 0)},
      {"optimizer", 2 * adapter},
      {"arena", model.program().arena_bytes()},
      {"checkpoints", static_cast<uint64_t>(schedule.most_selected(layers)) * units_per_layer * activation},
      {"activations", 4 * activation},
      {"kernel_scratch", model.scratch_bytes(tokens)},
  };
  if (backward == Backward::kRecompute) return plan;
  const uint64_t layer = model.saved_layer_bytes(tokens);
  const uint64_t most = static_cast<uint64_t>(schedule.most_selected(layers));
  const uint64_t room = layer > 0 && budget > plan.total() ? (budget - plan.total()) / layer : 0;
  const uint64_t stored = backward == Backward::kStore || budget == 0 ? most : std::min(most, room);
  plan.stored_layers = static_cast<int64_t>(stored);
  plan.components.push_back({"saved_activations", stored * layer});
  return plan;
}

void check_budget(const Plan& plan, uint64_t budget) {
  if (budget == 0 || plan.total() <= budget) return;
  fail("budget ", budget / kMegabyte, "MB is too small: this run needs ", plan.total() / kMegabyte + 1,
       "MB; raise --budget, or lower --seq-len, --batch-size or --ratio");
}

}  // namespace mft
