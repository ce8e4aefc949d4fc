#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// y[i] = cap tanh(x[i] / cap); i in [0, n). Gemma 2 limits its logits to (-cap, cap) in this way.
void softcap(const float* x, int64_t n, float cap, float* y);

}  // namespace mft::MFT_ISA
