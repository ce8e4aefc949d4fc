#include "runtime/kernels/elementwise/split.h"

#include <algorithm>

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Rows of n numbers that one thread takes at least.
int64_t rows_at_once(int64_t n) { return std::max<int64_t>(1, 16384 / n); }

}  // namespace

void split(const float* x, int64_t rows, int64_t n, int64_t first, float* a, float* b) {
  parallel_ranges(rows, rows_at_once(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x + i * n, first, a + i * first);
      std::copy_n(x + i * n + first, n - first, b + i * (n - first));
    }
  });
}

void join(const float* a, const float* b, int64_t rows, int64_t first, int64_t rest, float* x) {
  const int64_t n = first + rest;
  parallel_ranges(rows, rows_at_once(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(a + i * first, first, x + i * n);
      std::copy_n(b + i * rest, rest, x + i * n + first);
    }
  });
}

}  // namespace mft::MFT_ISA
