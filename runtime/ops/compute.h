#pragma once

#include "runtime/kernels/linear/linear.h"

namespace mft {

/// What the ops of linear layers compute with from now on; only the runtime's one training thread sets it, before each
/// method.
void set_compute(Compute compute);

/// Whether they give the gradient of LoRA's A; where not, that output stays as it is.
void set_lora_a_gradient(bool wanted);

}  // namespace mft
