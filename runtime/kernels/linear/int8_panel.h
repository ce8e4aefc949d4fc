#pragma once

// Packed weights as 8-bit panels, decoded for the integer products like decode.h does for those in float32: rounded
// again, with a scale for each column of the panel and block of kInt8Block of what is summed over.

#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_rows.h"

namespace mft::MFT_ISA {

// Longest run of what is summed over that a panel holds; a multiple of kInt8Block.
constexpr int64_t kInt8Chunk = 1024;

// A panel of kTileCols columns: codes [k / kDepth][kTileCols][kDepth], scales [blocks][kTileCols].
struct Int8Panel {
  uint8_t* codes;
  float* scales;

  static constexpr int64_t kCodeBytes = kInt8Chunk * kTileCols;
  static constexpr int64_t kScales = kInt8Chunk / kInt8Block * kTileCols;
  // Of element i of what is summed over.
  static constexpr int64_t index(int64_t i, int64_t column) {
    return (i / kDepth * kTileCols + column) * kDepth + i % kDepth;
  }
  Int8Panel at(int64_t column) const { return {codes + kDepth * column, scales + column}; }
  Int8Panel next() const { return {codes + kInt8Block * kTileCols, scales + kTileCols}; }  // block
};

// Columns [n0, n0 + nr) of W^T, rows [k0, k0 + kc): k0 a multiple of kInt8Block, kc <= kInt8Chunk one of 16.
void load_int8_panel(const PackedWeight& w, int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out);

// Columns [k0, k0 + kr) of W, rows [n0, n0 + nc): n0 a multiple of kInt8Block, nc <= kInt8Chunk. Rows are those of
// whole stored panels of 16, past the last one of W too.
void load_int8_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, int64_t kr, Int8Panel out);

}  // namespace mft::MFT_ISA
