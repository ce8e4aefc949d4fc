#include "runtime/python/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/kernels/threads.h"
#include "runtime/kernels/vec.h"

namespace mft {
namespace {

/// Multiply-adds of independent chains in registers, `rounds` x kChains x kVec of them.
float multiply_add(int64_t rounds, float start) {
  constexpr int kChains = 12;
  Vec acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = splat(start + static_cast<float>(i));
  const Vec factor = splat(0.999f), step = splat(start);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = acc[i] * factor + step;
  }
  Vec total{};
  for (int i = 0; i < kChains; ++i) total += acc[i];
  return sum(total);
}

}  // namespace

double fma_peak_gflops() {
  constexpr int64_t kRounds = 2000000;
  const int threads = thread_count();
  std::vector<float> results(static_cast<size_t>(threads));
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, [&](int64_t i) { results[static_cast<size_t>(i)] = multiply_add(kRounds, 0.5f); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * 12 * kVec * kRounds * threads / seconds / 1e9);
  }
  volatile float keep = results[0];
  (void)keep;
  return best;
}

}  // namespace mft
