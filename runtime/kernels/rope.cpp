#include "runtime/kernels/rope.h"

#include <cmath>

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kTokens = 16;

}  // namespace

void rope(const float* x, const int64_t* positions, const float* inv_freq, int64_t t, int64_t heads, int64_t dim,
          bool inverse, float* y, Scratch scratch) {
  const int64_t half = dim / 2;
  const float sign = inverse ? -1.f : 1.f;
  float* tables = scratch.take(thread_count() * dim);
  parallel_for_worker(ceil_div(t, kTokens), [&](int64_t block, int64_t worker) {
    float* cosine = tables + worker * dim;
    float* sine = cosine + half;
    for (int64_t i = block * kTokens; i < std::min(t, (block + 1) * kTokens); ++i) {
      const float position = static_cast<float>(positions[i]);
      for (int64_t j = 0; j < half; ++j) {
        const float angle = position * inv_freq[j];
        cosine[j] = std::cos(angle);
        sine[j] = sign * std::sin(angle);
      }
      for (int64_t head = 0; head < heads; ++head) {
        const float* in = x + (i * heads + head) * dim;
        float* out = y + (i * heads + head) * dim;
        for (int64_t j = 0; j < half; ++j) {
          const float low = in[j];
          const float high = in[j + half];
          out[j] = low * cosine[j] - high * sine[j];
          out[j + half] = high * cosine[j] + low * sine[j];
        }
      }
    }
  });
}

size_t rope_scratch_bytes(int64_t dim) {
  ScratchSize size;
  size.take(thread_count() * dim);
  return size.bytes;
}

}  // namespace mft::MFT_ISA
