#pragma once

// Matrix products within a chunk of tokens, by one thread.

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/linear/gemm.h"

namespace mft::MFT_ISA {

// Buffers of one thread for products of matrices with at most `most` rows and columns.
struct ProductBuffers {
  float* packed;  // left-hand factor
  float* panels;  // right-hand factor

  static int64_t floats(int64_t most) { return packed_floats(most, most) + panel_floats(most, most); }
  void set_product(float* base, int64_t most) {
    packed = base;
    panels = base + packed_floats(most, most);
  }
};

// What of a product is zero or not needed: A is lower or upper triangular, or of C only the part on and below the
// diagonal is written.
enum class Part { kAll, kLowerA, kUpperA, kLowerC };

// C [m, n] (+)= alpha A B.
void chunk_product(Mat a, int64_t m, int64_t k, Mat b, int64_t n, float alpha, float* c, int64_t ldc, bool add,
                   const ProductBuffers& buffers, Part part = Part::kAll);

// The same for a packed A and the panels of B.
void multiply_packed(int64_t m, int64_t k, int64_t n, float* c, int64_t ldc, bool add, const ProductBuffers& buffers,
                     Part part);

// Calls part(i, lanes) for the registers that cover [0, n).
template <typename Part>
void each_register(int64_t n, const Part& part) {
  for (int64_t i = 0; i < n; i += kVec) part(i, std::min<int64_t>(kVec, n - i));
}

}  // namespace mft::MFT_ISA
