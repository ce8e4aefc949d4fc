#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace mft {

/// SplitMix64 (Steele et al. 2014): small, and, unlike std::shuffle, the same on every platform.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(seed * 0x9E3779B97F4A7C15u + stream * 0xD1342543DE82EF95u) { next(); }

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Returns 0 .. n-1 in random order (Fisher-Yates).
  std::vector<int64_t> permutation(int64_t n) {
    std::vector<int64_t> order;
    permute(n, order);
    return order;
  }
  /// The same, written to `order`, whose memory is reused.
  void permute(int64_t n, std::vector<int64_t>& order) {
    order.resize(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next() % i]);
  }

 private:
  uint64_t state_;
};

}  // namespace mft
