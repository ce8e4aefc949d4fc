#include "runtime/kernels/linear/peak.h"

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int kChains = 12;

float multiply_add(int64_t rounds, float start) {
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

int64_t multiply_add_peak(int64_t rounds) {
  volatile float keep[kMostThreads];
  parallel_for(thread_count(), [&](int64_t i) { keep[i] = multiply_add(rounds, 0.5f); });
  return rounds * kChains * kVec * thread_count();
}

}  // namespace mft::MFT_ISA
