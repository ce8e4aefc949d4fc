#pragma once

// Codes of packed weights, stored column by column (docs/reference/bundle_format.md), as quads: the four codes that one
// lane of an integer product multiplies. With kNibbles a stored column is 8 bytes, rows 0 to 7 in the low halves and
// rows 8 to 15 in the high halves; else it is 16 bytes.

#include <cstdint>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

typedef uint8_t B16 __attribute__((vector_size(16)));
typedef uint16_t H16 __attribute__((vector_size(16)));

// 64 bytes from four parts.
inline void join(const B16 parts[4], VecB out[k16Vecs]) {
#if defined(__AVX512F__)
  const __m256i low = _mm256_set_m128i((__m128i)parts[1], (__m128i)parts[0]);
  out[0] =
      (VecB)_mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_set_m128i((__m128i)parts[3], (__m128i)parts[2]), 1);
#elif defined(__AVX2__)
  for (int i = 0; i < 2; ++i) out[i] = (VecB)_mm256_set_m128i((__m128i)parts[2 * i + 1], (__m128i)parts[2 * i]);
#else
  for (int i = 0; i < 4; ++i) out[i] = (VecB)parts[i];
#endif
}

// Pairs of bytes, from each in turn.
inline void interleave(B16 ab, B16 cd, B16* low, B16* high) {
  *low = (B16)__builtin_shufflevector((H16)ab, (H16)cd, 0, 8, 1, 9, 2, 10, 3, 11);
  *high = (B16)__builtin_shufflevector((H16)ab, (H16)cd, 4, 12, 5, 13, 6, 14, 7, 15);
}

#if defined(__AVX2__)
// In each 16 bytes, the first bytes of its four lanes, then the second ones, and so on.
inline __m256i bytes_of_lanes() {
  return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// Four stored columns of nibbles, in either half of each byte: a quad for each of 8 rows.
inline __m256i quads_of_nibbles(const uint8_t* codes) {
  const __m256i rows = _mm256_permutevar8x32_epi32((__m256i)(_mm256_loadu_si256((const __m256i*)codes)),
                                                   _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return _mm256_shuffle_epi8(rows, bytes_of_lanes());
}
#endif

// Four stored columns of 16 codes each, [4][16], as [16][4]: a quad for each row.
template <bool kNibbles>
void quads_of_columns(const uint8_t* codes, VecB out[k16Vecs]) {
#if defined(__AVX512F__)
  if constexpr (kNibbles) {
    const __m512i both = _mm512_broadcast_i64x4(quads_of_nibbles(codes));
    const __m512i halves = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
    out[0] = (VecB)halves & 15;
  } else {
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i rows = _mm512_permutexvar_epi32(lanes, _mm512_loadu_si512(codes));
    out[0] = (VecB)_mm512_shuffle_epi8(rows, _mm512_broadcast_i64x4(bytes_of_lanes()));
  }
  return;
#elif defined(__AVX2__)
  if constexpr (kNibbles) {
    const VecB both = (VecB)quads_of_nibbles(codes);
    out[0] = both & 15;
    out[1] = (VecB)((VecHU)both >> 4) & 15;
    return;
  }
#endif
  B16 quads[4];
  if constexpr (kNibbles) {
    B16 pairs[2];
    for (int i = 0; i < 2; ++i) {
      const B16 two = (B16)load_16(codes + 16 * i);
      pairs[i] = __builtin_shufflevector(two, two, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    interleave(pairs[0], pairs[1], &quads[0], &quads[1]);
    for (int i = 0; i < 2; ++i) quads[2 + i] = (B16)((H16)quads[i] >> 4);
    join(quads, out);
    for (int v = 0; v < k16Vecs; ++v) out[v] &= 15;
  } else {
    const B16 a = (B16)load_16(codes), b = (B16)load_16(codes + 16);
    const B16 c = (B16)load_16(codes + 32), d = (B16)load_16(codes + 48);
    const auto low = [](B16 x, B16 y) {
      return __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    };
    const auto high = [](B16 x, B16 y) {
      return __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    };
    interleave(low(a, b), low(c, d), &quads[0], &quads[1]);
    interleave(high(a, b), high(c, d), &quads[2], &quads[3]);
    join(quads, out);
  }
}

// kVec stored columns of 16 codes each as quads of four rows: quads[q] has rows 4 q to 4 q + 3 of every column.
template <bool kNibbles>
void quads_of_rows(const uint8_t* codes, VecB quads[4]) {
  if constexpr (kNibbles) {
    const VecI a = (VecI)load_wide(codes), b = (VecI)load_wide(codes + kVecBytes);
    const VecB even = (VecB)even_lanes(a, b), odd = (VecB)odd_lanes(a, b);
    quads[0] = even & 15, quads[1] = odd & 15;
    quads[2] = (VecB)((VecHU)even >> 4) & 15, quads[3] = (VecB)((VecHU)odd >> 4) & 15;
  } else {
    VecI v[4];
    for (int i = 0; i < 4; ++i) v[i] = (VecI)load_wide(codes + i * kVecBytes);
    const VecI even0 = even_lanes(v[0], v[1]), odd0 = odd_lanes(v[0], v[1]);
    const VecI even1 = even_lanes(v[2], v[3]), odd1 = odd_lanes(v[2], v[3]);
    quads[0] = (VecB)even_lanes(even0, even1), quads[2] = (VecB)odd_lanes(even0, even1);
    quads[1] = (VecB)even_lanes(odd0, odd1), quads[3] = (VecB)odd_lanes(odd0, odd1);
  }
}

// Four values of each lane's column as one lane of codes, round(value * inverse) + kOffset.
template <unsigned kOffset>
VecB quad_of_values(const Vec values[4], Vec inverse) {
  // Summed before the offset takes out their signs, which borrow from the byte above.
  constexpr unsigned kUnsigned = kOffset > 0 ? kOffset : 128;
  VecU sum = VecU{} + 0x01010101u * kUnsigned;
  for (int j = 0; j < 4; ++j) sum += (VecU)round_product(values[j], inverse) << (8 * j);
  return kOffset > 0 ? (VecB)sum : (VecB)sum ^ 128;
}

}  // namespace mft::MFT_ISA
