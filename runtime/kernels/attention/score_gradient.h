#pragma once

// What the backward of attention computes between its products.

#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/softmax_row.h"

namespace mft::MFT_ISA {

// delta [heads, T] = dout_i . o_i, on all threads.
void row_products(const AttentionShape& shape, const float* dout, const float* o, float* delta);

// Of the rows [begin, end) of a tile: p to e^(p - lse) where it is seen, else 0; ds to p (ds - delta). With a softcap,
// p is limited first, and ds is multiplied by the slope.
inline void gradient_of_scores(const Seen& seen, int64_t begin, int64_t end, const float* lse, const float* delta,
                               float softcap, float* p, float* ds) {
  for (int64_t r = begin; r < end; ++r, p += kBlock, ds += kBlock) {
    const auto [first, last] = seen.of_row[r];
    std::fill(p, p + first, 0.f);
    std::fill(p + last, p + seen.keys, 0.f);
    std::fill(ds, ds + first, 0.f);
    std::fill(ds + last, ds + seen.keys, 0.f);
    if (softcap > 0) {
      softcap_row(p + first, last - first, softcap);
      for (int64_t j = first; j < last; ++j) {
        ds[j] = (ds[j] - delta[r]) * (1.f - p[j] / softcap * (p[j] / softcap));
      }
      exp_row(p + first, last - first, lse[r]);
      for (int64_t j = first; j < last; ++j) ds[j] *= p[j];
      continue;
    }
    exp_row(p + first, last - first, lse[r]);
    for (int64_t j = first; j < last; ++j) ds[j] = p[j] * (ds[j] - delta[r]);
  }
}

}  // namespace mft::MFT_ISA
