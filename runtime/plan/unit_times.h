#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/plan/throughput.h"
#include "runtime/platform/threads.h"

namespace mft {

// Attention's backward has five products, its forward two.
constexpr double kAttentionBackward = 2.5;

/// Seconds that one micro-batch of a run spends in a unit or in the head. With T tokens, of sequences of S tokens:
///
///   linear operations * T / linear + attention operations * T * S / attention
///     + weights * calls / decoded + weights / hidden_size * T / elements
///
/// where the divisors are a machine's throughput. Every call decodes all weights of its unit. Each row of weights gives
/// a number for each token, which elementwise ops take.
class UnitTimes {
 public:
  UnitTimes(const TrainConfig& config, const Bundle& bundle, const Throughput& throughput)
      : tokens_(config.tokens()), seq_len_(config.seq_len), bundle_(bundle), throughput_(throughput) {}

  /// A pass of a unit with these operations per token, in calls of up to `call` tokens. `attention` is the factor on
  /// attention's forward.
  double unit(const Flops& flops, int64_t call, double attention = 1) const {
    const double tokens = static_cast<double>(tokens_), weights = flops.linear / 2;
    const double hidden = static_cast<double>(std::max<int64_t>(1, bundle_.hidden_size));
    return flops.linear * tokens / throughput_.linear +
           flops.quadratic * tokens * static_cast<double>(seq_len_) * attention / throughput_.attention +
           weights * static_cast<double>(ceil_div(tokens_, call)) / throughput_.decoded +
           weights / hidden * tokens / throughput_.elements;
  }

  /// A pass of the head with these operations per token.
  double head(double flops) const {
    const double weights = static_cast<double>(bundle_.hidden_size) * static_cast<double>(bundle_.vocab_size);
    const int64_t call = std::max<int64_t>(1, bundle_.head_tokens);
    return flops * static_cast<double>(tokens_) / throughput_.linear +
           weights * static_cast<double>(ceil_div(tokens_, call)) / throughput_.decoded;
  }

 private:
  const int64_t tokens_, seq_len_;
  const Bundle& bundle_;
  const Throughput& throughput_;
};

}  // namespace mft
