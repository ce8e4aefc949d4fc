#pragma once

// Packs float weights, with scales found by error search.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"

namespace mft {

// Bytes of W [rows, cols] in a format.
size_t packed_bytes(Format format, int64_t rows, int64_t cols);

// Packs W [rows, cols], cols a multiple of the group. Around the scale by which a group's largest value just fits
// others are tried: each gives codes, the codes the scale (in q4_1 and q8_1 the minimum too) of least squares, and the
// one with the smallest squared error stays, as in llama.cpp's make_qx_quants and make_qkx2_quants, for every format
// alike. `importance` [cols], above 0, weighs the errors of columns; null: all the same. In formats without a minimum
// an error in x counts sqrt(1 + x^2 / mean square of the group) besides. False where a value is not finite or too large
// for the format.
bool quantize(const float* w, int64_t rows, int64_t cols, const float* importance, Format format, uint8_t* packed);

}  // namespace mft
