#pragma once

// Decoding of packed weights, one tile at a time.

#include <cstdint>

#include "runtime/formats/format.h"

namespace mft::MFT_ISA {

// out[k][j] = W[panel * 16 + j][k0 + k], k in [0, kc), j in [0, 16), rows of `out` ld floats apart: what y = x W^T
// multiplies by. Rows past the last one read as zero.
void decode_panel(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out, int64_t ld);

// out[n][j] = W[n0 + n][k0 + j], n in [0, nc), j in [0, 16): what dx = dy W multiplies by.
// n0 and k0 are multiples of 16; out holds nc rounded up to 16 rows, ld floats apart.
void decode_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out, int64_t ld);

// out[k] = W[row][k], k in [0, K).
void decode_row(const PackedWeight& w, int64_t row, float* out);

}  // namespace mft::MFT_ISA
