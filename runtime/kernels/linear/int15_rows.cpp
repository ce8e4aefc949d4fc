#include "runtime/kernels/linear/int15_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kHalf = kInt15Block / 2;
constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow
// Rows that one thread encodes at a time: fewer are done sooner than a second thread is awake.
constexpr int64_t kRowsOfThread = 8;

// Writes kVec numbers from -127 to 127 as bytes.
void store_bytes(int8_t* p, VecI v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m128i low = _mm256_castsi256_si128((__m256i)v), high = _mm256_extracti128_si256((__m256i)v, 1);
  const __m128i words = _mm_packs_epi32(low, high);
  _mm_storeu_si64(p, _mm_packs_epi16(words, words));
#else
  const int16x4_t words = vmovn_s32((int32x4_t)v);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
  std::memcpy(p, &bytes, static_cast<size_t>(kVec));
#endif
}

// Of whole numbers far below 2^24.
int32_t sum_lanes(VecI v) { return static_cast<int32_t>(sum(to_float(v))); }

// Where one block is written: the parts, and the sums of their halves.
struct BlockOut {
  int8_t *first, *second;
  float* scale;
  int32_t *first_sums, *second_sums;
};

// Numbers of the block behind the row's end are 0.
void encode_block(const float* x, int64_t count, const BlockOut& out) {
  alignas(64) float values[kInt15Block] = {};
  if (count < kInt15Block) x = std::copy_n(x, count, values) - count;
  Vec largest{}, zero{};  // NaN after a number that is not finite
  for (int64_t i = 0; i < kInt15Block; i += kVec) {
    const Vec value = load(x + i), size = vmax(value, -value);
    largest = vmax(largest, size);
    zero += size * 0.f;
  }
  const bool all_finite = sum(zero) == 0.f;
  const float most = max_lane(largest);
  *out.scale = all_finite ? most / (127.f * Int15Rows::kSecondPart) : std::numeric_limits<float>::quiet_NaN();
  const float inverse = all_finite && most > kSmallest ? 127.f / most : 0.f;
  for (int64_t half = 0; half < 2; ++half) {
    VecI firsts{}, seconds{};
    for (int64_t i = half * kHalf; i < (half + 1) * kHalf; i += kVec) {
      const Vec scaled = all_finite ? load(x + i) * inverse : Vec{};
      const VecI first = round_to_int(scaled);
      const VecI second = round_to_int((scaled - to_float(first)) * static_cast<float>(Int15Rows::kSecondPart));
      firsts += first, seconds += second;
      store_bytes(out.first + i, first);
      store_bytes(out.second + i, second);
    }
    out.first_sums[half] = sum_lanes(firsts);
    out.second_sums[half] = sum_lanes(seconds);
  }
}

}  // namespace

void Int15Rows::add(int64_t m, int64_t k, ScratchSize& size) {
  size.take_bytes(static_cast<size_t>(2 * m * padded(k)));
  size.take(static_cast<size_t>(m * blocks(k)));
  size.take(static_cast<size_t>(m * 4 * blocks(k)));
}

Int15Rows::Int15Rows(const float* x_rows, int64_t rows, int64_t columns, Scratch& scratch)
    : m(rows),
      k(columns),
      x(x_rows),
      codes(reinterpret_cast<int8_t*>(scratch.take_bytes(static_cast<size_t>(2 * m * padded(k))))),
      scales(scratch.take(static_cast<size_t>(m * blocks(k)))),
      sums(reinterpret_cast<int32_t*>(scratch.take(static_cast<size_t>(m * 4 * blocks(k))))) {}

void Int15Rows::encode() {
  parallel_ranges(m, kRowsOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t b = 0; b < blocks(k); ++b) {
        const int64_t at = b * kInt15Block, count = std::min(kInt15Block, k - at);
        int8_t* first = codes + 2 * r * padded(k) + at;
        int32_t* halves = sums + 4 * r * blocks(k) + 2 * b;
        encode_block(x + r * k + at, count,
                     {first, first + padded(k), scales + r * blocks(k) + b, halves, halves + 2 * blocks(k)});
      }
    }
  });
}

}  // namespace mft::MFT_ISA
