#pragma once

// The softmax of a block of queries, whose scores come in tiles (arXiv 2112.05682): maximum and sum so far, of each
// row.

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/softmax_row.h"

namespace mft::MFT_ISA {

class OnlineSoftmax {
 public:
  // `sink` is the score of a key without a value, null: none.
  OnlineSoftmax(int64_t rows, const float* sink) : rows_(rows) {
    std::fill_n(maximum_, rows, sink != nullptr ? *sink : kNone);
    std::fill_n(total_, rows, sink != nullptr ? 1.f : 0.f);
  }

  // The scores of the rows [begin, end) of a tile, kBlock apart, to e^(score - maximum), or 0 where they are not seen.
  // Where a maximum grows, the row of o [end - begin, dim], which sums up values so far, shrinks (null: none yet).
  void add(const Seen& seen, float softcap, int64_t begin, int64_t end, float* scores, float* o, int64_t ldo,
           int64_t dim) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = scores + (r - begin) * kBlock;
      const auto [first, last] = seen.of_row[r];
      std::fill(row, row + first, 0.f);
      std::fill(row + last, row + seen.keys, 0.f);
      if (first == last) continue;
      if (softcap > 0) softcap_row(row + first, last - first, softcap);
      const float high = max_of(row + first, last - first);
      if (high > maximum_[r]) {
        if (maximum_[r] != kNone) {
          const float factor = std::exp(maximum_[r] - high);
          total_[r] *= factor;
          if (o != nullptr) scale_row(o + (r - begin) * ldo, dim, factor);
        }
        maximum_[r] = high;
      }
      total_[r] += exp_row(row + first, last - first, maximum_[r]);
    }
  }

  // log_sum [rows] may be null.
  void finish(float* o, int64_t ldo, int64_t dim, float* log_sum) const {
    for (int64_t r = 0; r < rows_; ++r) {
      scale_row(o + r * ldo, dim, 1.f / total_[r]);
      if (log_sum != nullptr) log_sum[r] = maximum_[r] + std::log(total_[r]);
    }
  }

 private:
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  // y[i] *= factor.
  static void scale_row(float* y, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i) y[i] *= factor;
  }

  int64_t rows_;
  float maximum_[kBlock];
  float total_[kBlock];
};

}  // namespace mft::MFT_ISA
