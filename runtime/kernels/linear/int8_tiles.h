#pragma once

// Products of codes on the matrix unit of x86 (AMX). Its tiles are registers of up to 16 rows of 64 bytes:
//
//   C [rows][16] += A [rows][64] B [64][16], B as [16][16][4]; A and B in 8 bits, C in 32 (TDPBSSD).
//
// Without AMX, MatrixUnit does nothing.

#include <cstdint>

#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

#if defined(__AMX_INT8__)
// The shapes that tile_products() wants: three tiles of kTileRows rows, two of 16. Constant, because GCC 12 does not
// know that _tile_loadconfig reads all of it.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, 16, 16};
};
inline constexpr TileShapes kTileShapes;

// While it lives, this thread's tiles have these shapes.
class MatrixUnit {
 public:
  MatrixUnit() { _tile_loadconfig(&kTileShapes); }
  ~MatrixUnit() { _tile_release(); }
  MatrixUnit(const MatrixUnit&) = delete;
  MatrixUnit& operator=(const MatrixUnit&) = delete;
};

// sums [kTileRows][kTileCols] = the products of a tile's codes and a panel's, `steps` of kRun long.
inline void tile_products(int64_t steps, const int8_t* a, const uint8_t* b, int32_t* sums) {
  static_assert(kTileCols == 32 && kRun == 64);
  constexpr int64_t kColumnBytes = kTileCols * sizeof(int32_t);
  asm volatile("" ::: "memory");  // GCC 12 does not know that _tile_loadd reads memory
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t s = steps; s > 0; --s, a += kTileRows * kRun, b += kRun * kTileCols) {
    _tile_loadd(2, a, kRun);
    _tile_loadd(3, b, kColumnBytes);
    _tile_loadd(4, b + 64, kColumnBytes);
    _tile_dpbssd(0, 2, 3);
    _tile_dpbssd(1, 2, 4);
  }
  _tile_stored(0, sums, kColumnBytes);
  _tile_stored(1, sums + 16, kColumnBytes);
}
#else
class MatrixUnit {
 public:
  MatrixUnit() {}
};
#endif

}  // namespace mft::MFT_ISA
