#pragma once

// Vectors of bytes and of 16 bits as wide as those of floats, and the products that integer kernels are made of.

#include <cstdint>

#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

constexpr int kVecBytes = 4 * kVec;

typedef uint8_t VecB __attribute__((vector_size(kVecBytes)));
typedef int16_t VecH __attribute__((vector_size(kVecBytes)));
typedef uint16_t VecHU __attribute__((vector_size(kVecBytes)));  // wraps around where VecH would overflow
typedef uint8_t VecBUnaligned __attribute__((vector_size(kVecBytes), may_alias, aligned(1)));

inline VecB load_wide(const void* p) { return *reinterpret_cast<const VecBUnaligned*>(p); }
inline void store_wide(void* p, VecB v) { *reinterpret_cast<VecBUnaligned*>(p) = v; }

// Weights are codes of at most kWeightMax in magnitude, and lie in the panel with kWeightOffset added, which the sum of
// the activations' codes takes out again. vpdpbusd wants bytes without a sign; vpmaddubsw would saturate above 7 bits.
#if defined(__AMX_INT8__)
constexpr int kWeightMax = 127, kWeightOffset = 0;
#elif defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int kWeightMax = 127, kWeightOffset = 128;
#elif defined(__AVX2__)
constexpr int kWeightMax = 63, kWeightOffset = 64;
#else
constexpr int kWeightMax = 127, kWeightOffset = 0;
#endif

// Whether one instruction sums four products of bytes.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD) || \
    defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool kDotProducts = true;
#else
constexpr bool kDotProducts = false;
#endif

// Where rows of codes and columns of weights are multiplied, kDepth of each lie together: [k / kDepth][row or
// column][kDepth].
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kDepth = 8;
#else
constexpr int kDepth = 4;
#endif
constexpr int kQuads = kDepth / 4;
// Of rows of codes, a tile of AMX has more together than of columns.
#if defined(__AMX_INT8__)
constexpr int kRowDepth = 64;
#else
constexpr int kRowDepth = kDepth;
#endif

// x86 without dot products adds up eight products of a lane in its halves of 16 bits, which wrap around. What the
// kWeightOffset in the weights adds is taken out there too, by corrections that lie behind each run of eight codes of
// all rows: the sum without it, of four products, fits. Elsewhere sums start from -kSumOffset times that of the codes.
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define MFT_PAIR_SUMS
constexpr int kRun = 8, kRunBytes = 12, kSumOffset = 0;
static_assert(4 * (kWeightMax + 1) * 127 < 1 << 15);
#else
constexpr int kRun = kRowDepth, kRunBytes = kRowDepth, kSumOffset = kWeightOffset;
#endif

// Stores kVec columns of a panel, four weights of each in every quad.
inline void store_columns(uint8_t* p, const VecB quads[kQuads]) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  const uint32x4x2_t pair = {{(uint32x4_t)quads[0], (uint32x4_t)quads[1]}};
  vst2q_u32(reinterpret_cast<uint32_t*>(p), pair);
#else
  store_wide(p, quads[0]);
#endif
}

// Four codes in every lane.
inline VecI splat_4(const int8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, sizeof(four));
  return four - VecI{};
}

#if !defined(MFT_PAIR_SUMS)
// sums[i] += the product of the four weights in lane i and the four codes there.
inline VecI dot_lanes(VecI sums, VecB weights, VecI codes) {
#if defined(__AVX512VNNI__)
  return (VecI)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)codes);
#elif defined(__AVXVNNI__)
  return (VecI)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)weights, (__m256i)codes);
#elif defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_MATMUL_INT8)
  return (VecI)vdotq_s32((int32x4_t)sums, (int8x16_t)weights, (int8x16_t)codes);
#else
  const int8x16_t w = (int8x16_t)weights, x = (int8x16_t)codes;
  // Two products of at most 128 * 127 fit 16 bits.
  const int16x8_t pairs = vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
  return (VecI)vpadalq_s16((int32x4_t)sums, pairs);
#endif
}
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
// sums += the products of two rows, of eight codes each, and two columns: row by row.
inline VecI dot8_pairs(VecI sums, VecB columns, VecB rows) {
  return (VecI)vmmlaq_s32((int32x4_t)sums, (int8x16_t)rows, (int8x16_t)columns);
}
#elif defined(__ARM_FEATURE_DOTPROD)
// sums[i] += the product of the four weights in lane i and the four codes of this row; reads those of four rows.
inline VecI dot4(VecI sums, VecB weights, const int8_t* codes, int row) {
  const int32x4_t s = (int32x4_t)sums;
  const int8x16_t w = (int8x16_t)weights, four = vld1q_s8(codes + row / 4 * 16);
  switch (row % 4) {  // the lane has to be a constant
    case 0:
      return (VecI)vdotq_laneq_s32(s, w, four, 0);
    case 1:
      return (VecI)vdotq_laneq_s32(s, w, four, 1);
    case 2:
      return (VecI)vdotq_laneq_s32(s, w, four, 2);
    default:
      return (VecI)vdotq_laneq_s32(s, w, four, 3);
  }
}
#elif defined(MFT_PAIR_SUMS)
// The products of four weights and four codes in each lane, summed in its halves.
inline VecHU pair_sums(VecB weights, VecI codes) {
#if defined(__AVX512F__)
  return (VecHU)_mm512_maddubs_epi16((__m512i)weights, (__m512i)codes);
#else
  return (VecHU)_mm256_maddubs_epi16((__m256i)weights, (__m256i)codes);
#endif
}

// Of a run whose codes lie in the same lane of two vectors.
inline VecHU correction(VecI first, VecI second) {
  const VecB offset = VecB{} + static_cast<uint8_t>(kWeightOffset);
  return -(pair_sums(offset, first) + pair_sums(offset, second));
}

// The sum of both halves of each lane.
inline VecI add_halves(VecHU pairs) {
#if defined(__AVX512F__)
  return (VecI)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1));
#else
  return (VecI)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1));
#endif
}

// The bytes of each lane, which are signed, without their signs; and the codes with these signs.
inline VecB absolute(VecB signed_bytes) {
#if defined(__AVX512F__)
  return (VecB)_mm512_abs_epi8((__m512i)signed_bytes);
#else
  return (VecB)_mm256_abs_epi8((__m256i)signed_bytes);
#endif
}
inline VecI with_signs(VecI codes, VecB signed_bytes) {
#if defined(__AVX512F__)
  const __mmask64 negative = _mm512_movepi8_mask((__m512i)signed_bytes);
  return (VecI)_mm512_mask_sub_epi8((__m512i)codes, negative, _mm512_setzero_si512(), (__m512i)codes);
#else
  return (VecI)_mm256_sign_epi8((__m256i)codes, (__m256i)signed_bytes);
#endif
}
#else
// sums[i] += the product of the four weights in lane i and the four codes of this row.
inline VecI dot4(VecI sums, VecB weights, const int8_t* row_codes, int row) {
  return dot_lanes(sums, weights, splat_4(row_codes + 4 * row));
}
#endif

// sums[i] += the four codes in lane i, where kSumOffset needs that.
inline VecI add_codes(VecI sums, VecI codes) {
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  return (VecI)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi8(1), (__m512i)codes);
#elif defined(__AVXVNNI__)
  return (VecI)_mm256_dpbusd_avx_epi32((__m256i)sums, _mm256_set1_epi8(1), (__m256i)codes);
#else
  static_assert(kSumOffset == 0);
  (void)codes;
  return sums;
#endif
}

// (a b + 2^14) / 2^15, rounded down.
inline VecH multiply_high(VecH a, VecH b) {
#if defined(__AVX512F__)
  return (VecH)_mm512_mulhrs_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecH)_mm256_mulhrs_epi16((__m256i)a, (__m256i)b);
#else
  return (VecH)vqrdmulhq_s16((int16x8_t)a, (int16x8_t)b);
#endif
}

// table[codes[i]] for codes 0..15.
inline VecB lookup_bytes(const uint8_t table[16], VecB codes) {
#if defined(__AVX512F__)
  return (VecB)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(table)), (__m512i)codes);
#elif defined(__AVX2__)
  return (VecB)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(table)), (__m256i)codes);
#else
  return (VecB)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)codes);
#endif
}

// Every second 32 bits of a and then b: the first, third, ... or the second, fourth, ...
inline VecI even_lanes(VecI a, VecI b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
}
inline VecI odd_lanes(VecI a, VecI b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

}  // namespace mft::MFT_ISA
