#pragma once

// Both factors of an integer product from floats, for products of what has just been computed, as attention's are. A
// factor is the columns of x [k, n], whose rows lie `ld` apart: k is what the product sums over. Row i is multiplied by
// factors[i] first (null: by 1). Each column has a scale per block of kInt8Block rows, as in int8_rows.h.

#include <cstdint>

#include "runtime/kernels/linear/int8_panel.h"
#include "runtime/kernels/linear/int8_rows.h"

namespace mft::MFT_ISA {

// Columns that encode_tiles takes at once.
constexpr int64_t kMostColumns = 96;

// The columns as rows of the tiles from `tile` on; n <= kMostColumns, k = out.k.
void encode_tiles(const float* x, int64_t ld, int64_t n, const float* factors, const Int8Rows& out, int64_t tile);

// The columns as those of a panel of k <= kInt8Chunk rows; n <= kTileCols.
void encode_panel(const float* x, int64_t ld, int64_t k, int64_t n, const float* factors, Int8Panel out);

}  // namespace mft::MFT_ISA
