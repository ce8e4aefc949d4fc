#include "runtime/kernels/storage/int8_blocks.h"

#include <algorithm>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 256;       // blocks
constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow
constexpr int kVecs = Int8Block::kSize / kVec;

void pack_block(const float* x, int64_t count, Int8Block& out) {
  Vec values[kVecs];
  Vec largest{}, nothing{};  // NaN where a value is not finite
  for (int i = 0; i < kVecs; ++i) {
    values[i] = load_part(x + i * kVec, std::clamp<int64_t>(count - i * kVec, 0, kVec));
    largest = vmax(vmax(values[i], -values[i]), largest);
    nothing += values[i] - values[i];
  }
  const float most = max_lane(largest);
  out.scale = most / 127.f + sum(nothing);
  const Vec inverse = splat(most > kSmallest ? 127.f / most : 0.f);
  for (int i = 0; i < kVecs; ++i) store_i8(out.codes + i * kVec, round_product(values[i], inverse));
}

}  // namespace

void to_int8(const float* x, int64_t n, Int8Block* out) {
  parallel_ranges(int8_blocks(n), kStep, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      pack_block(x + b * Int8Block::kSize, std::min(Int8Block::kSize, n - b * Int8Block::kSize), out[b]);
    }
  });
}

void from_int8(const Int8Block* x, int64_t n, float* out) {
  parallel_ranges(int8_blocks(n), kStep, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * Int8Block::kSize, count = std::min(Int8Block::kSize, n - first);
      int64_t i = 0;
      for (; i + 16 <= count; i += 16) {
        VecI codes[k16Vecs];
        load_i8(reinterpret_cast<const uint8_t*>(x[b].codes + i), codes);
        for (int v = 0; v < k16Vecs; ++v) store(out + first + i + v * kVec, x[b].scale * to_float(codes[v]));
      }
      for (; i < count; ++i) out[first + i] = x[b].scale * static_cast<float>(x[b].codes[i]);
    }
  });
}

}  // namespace mft::MFT_ISA
