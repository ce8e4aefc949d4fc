#pragma once

#include <array>
#include <cstddef>

namespace mft {

/// The components of a run's memory, in the order of `names`, which reports and `mobile-ft profile` use.
enum class Component {
  kCode,
  kWeightsWindow,
  kHeap,
  kLora,
  kNoAdapter,
  kSideTensors,
  kStart,
  kGradients,
  kSpareGradients,
  kOptimizer,
  kKernelScratch,
  kArena,
  kSavedActivations,
  kActivations,
  kCheckpoints,
  kResidentWeights,
};
constexpr size_t kComponents = 16;
inline std::array<const char*, kComponents> names(Component) {
  return {
      "code",        "weights_window",  "heap",      "lora",           "no_adapter", "side_tensors",      "start",
      "gradients",   "spare_gradients", "optimizer", "kernel_scratch", "arena",      "saved_activations", "activations",
      "checkpoints", "resident_weights"};
}
/// Whether it is anonymous memory. Otherwise it consists of pages of files, which the kernel can drop and read again.
bool is_anonymous(Component component);

}  // namespace mft
