#include "runtime/kernels/storage/int4_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 1024;      // blocks
constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow
constexpr int kVecs = Int4Block::kSize / kVec;

// Rounded toward zero, so that it does not overflow; codes are made with what comes of it.
uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16 | (std::isnan(x) ? 0x40 : 0));
}

float from_bfloat16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void pack_block(const float* x, int64_t count, Int4Block& out) {
  Vec values[kVecs];
  Vec highest{}, lowest{}, nothing{};  // NaN where a value is not finite
  for (int i = 0; i < kVecs; ++i) {
    values[i] = load_part(x + i * kVec, std::clamp<int64_t>(count - i * kVec, 0, kVec));
    highest = vmax(values[i], highest);
    lowest = vmax(-values[i], lowest);
    nothing += values[i] - values[i];
  }
  const float high = max_lane(highest), low = max_lane(lowest), most = std::max(high, low);
  out.scale = to_bfloat16((low > high ? low : -high) / 8.f + sum(nothing));
  const Vec inverse = splat(most > kSmallest ? 1.f / from_bfloat16(out.scale) : 0.f);
  alignas(64) int8_t codes[Int4Block::kSize];
  for (int i = 0; i < kVecs; ++i) {
    const VecI code = round_product(values[i], inverse) + 8;
    store_i8(codes + i * kVec, code < 0 ? VecI{} : code > 15 ? VecI{} + 15 : code);
  }
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 8; ++j) {
      out.codes[8 * half + j] = static_cast<uint8_t>(codes[16 * half + j] | codes[16 * half + 8 + j] << 4);
    }
  }
}

}  // namespace

void to_int4(const float* x, int64_t n, Int4Block* out) {
  parallel_ranges(int4_blocks(n), kStep, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      pack_block(x + b * Int4Block::kSize, std::min(Int4Block::kSize, n - b * Int4Block::kSize), out[b]);
    }
  });
}

void from_int4(const Int4Block* x, int64_t n, float* out) {
  parallel_ranges(int4_blocks(n), kStep, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const float scale = from_bfloat16(x[b].scale);
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t first = b * Int4Block::kSize + half * 16;
        VecI codes[k16Vecs];
        load_nibbles(x[b].codes + 8 * half, codes);
        for (int v = 0; v < k16Vecs; ++v) {
          const int64_t at = first + v * kVec;
          if (at < n) store_part(out + at, scale * to_float(codes[v] - 8), std::min<int64_t>(kVec, n - at));
        }
      }
    }
  });
}

}  // namespace mft::MFT_ISA
