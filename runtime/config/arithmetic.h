#pragma once

#include <string>

#include "runtime/config/train_config.h"
#include "runtime/dispatch/kernels.h"

namespace mft {

/// The arithmetic of linear layers and attention on this machine.
inline Compute compute_of(const TrainConfig& config) {
  if (config.compute == ComputeChoice::kAuto) return kernels().dot_products ? Compute::kInt8 : Compute::kFloat32;
  return config.compute == ComputeChoice::kInt8 ? Compute::kInt8 : Compute::kFloat32;
}

/// The arithmetic and the instruction set. If a run is resumed or repeated with another one, the last bits differ.
inline std::string arithmetic(const TrainConfig& config) {
  return std::string(name_of(compute_of(config))) + "-" + kernels().isa;
}

}  // namespace mft
