#pragma once

// AdamW whose moments are kept in 8 bits, as bitsandbytes keeps them (8-bit Optimizers via Block-wise Quantization,
// arXiv 2110.02861): blocks of 256 values share their largest magnitude, and each value is one of 256 codes of the
// dynamic map, whose spacing grows with the magnitude.

#include <cstdint>

#include "runtime/kernels/storage/adamw.h"

namespace mft {

constexpr int64_t kMomentBlock = 256;

// One moment of n values: codes [n] and scales [ceil(n / 256)]. Zeroed scales mean zero, whatever the codes.
struct Moment8bit {
  uint8_t* codes;
  float* scales;
};

namespace MFT_ISA {

// Like `adamw_step`. Where the second moment is zero after rounding, the parameter stays: exact AdamW has no first
// moment there either.
void adamw8bit_step(float* p, const float* g, Moment8bit m, Moment8bit v, int64_t n, double lr, float grad_scale,
                    int64_t step, const AdamWConfig& config);

// The 256 values of the dynamic map, ascending: for the first moment, or (not `is_signed`) the second.
const float* dynamic_map(bool is_signed);

}  // namespace MFT_ISA
}  // namespace mft
