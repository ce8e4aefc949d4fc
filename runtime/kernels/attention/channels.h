#pragma once

// Products of queries and keys in 8 bits: some channels of both are much larger than the others, and would cost them
// their bits.

#include "runtime/kernels/attention/attention.h"

namespace mft::MFT_ISA {

// Factors of the channels of a head, [kv_heads, dim], that make those of x [t, heads, dim] and of y [t, kv_heads, dim]
// equally large and leave the products as they are: x . y = (x x_channels) . (y y_channels).
void balance_channels(const AttentionShape& shape, const float* x, const float* y, float* x_channels,
                      float* y_channels);

}  // namespace mft::MFT_ISA
