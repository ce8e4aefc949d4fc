#pragma once

// What is left of one token's contribution at another: e to the sum of the logarithms of the decays between them.
// Within a chunk, sums reach hundreds, and differences of floats that large would lose the digits that matter.

#include <cmath>
#include <cstdint>

#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

inline float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

// The sums c_i of the logarithms up to token i of a chunk, as c_i = high[i] + low[i].
struct DecaySums {
  float* high;
  float* low;

  // From the logarithms at the tokens.
  template <typename Logarithm>
  void load(int64_t tokens, const Logarithm& logarithm) const {
    double total = 0;
    for (int64_t i = 0; i < tokens; ++i) {
      total += static_cast<double>(logarithm(i));
      high[i] = static_cast<float>(total);
      low[i] = static_cast<float>(total - static_cast<double>(high[i]));
    }
  }

  // e^(c_i - c_j) for j <= i, and for the tokens from j on.
  float between(int64_t i, int64_t j) const { return std::exp((high[i] - high[j]) + (low[i] - low[j])); }
  Vec between(int64_t i, int64_t j, int64_t lanes) const {
    const Vec difference = (splat(high[i]) - load_part(high + j, lanes)) + (splat(low[i]) - load_part(low + j, lanes));
    return exp(vmin(difference, Vec{}));
  }
};

}  // namespace mft::MFT_ISA
