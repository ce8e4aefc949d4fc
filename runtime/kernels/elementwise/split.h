#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// a [rows, first] and b [rows, n - first] are the first and the other columns of x [rows, n].
void split(const float* x, int64_t rows, int64_t n, int64_t first, float* a, float* b);

// The inverse: x [rows, first + rest] of a [rows, first] and b [rows, rest].
void join(const float* a, const float* b, int64_t rows, int64_t first, int64_t rest, float* x);

}  // namespace mft::MFT_ISA
