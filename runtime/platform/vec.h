#pragma once

// Native-width float vectors from GCC vector extensions: 16 lanes with AVX-512, 8 with AVX2, 4 otherwise. Only what the
// extensions cannot say well (f16 and byte widening) uses intrinsics.

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

namespace mft::MFT_ISA {

#if defined(__AVX512F__)
constexpr int kVec = 16;
#elif defined(__AVX2__)
constexpr int kVec = 8;
#else
constexpr int kVec = 4;
#endif

typedef float Vec __attribute__((vector_size(kVec * 4)));
typedef int32_t VecI __attribute__((vector_size(kVec * 4)));
typedef uint32_t VecU __attribute__((vector_size(kVec * 4)));  // wraps around where VecI would overflow
typedef float VecUnaligned __attribute__((vector_size(kVec * 4), may_alias, aligned(4)));

inline Vec load(const float* p) { return *reinterpret_cast<const VecUnaligned*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecUnaligned*>(p) = v; }
inline Vec splat(float x) { return x - Vec{}; }

#if defined(__AVX512F__)
inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
#elif defined(__AVX2__)
inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

// The first n lanes, at most kVec; the others are zero.
inline Vec load_part(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
#elif defined(__AVX2__)
  return _mm256_maskload_ps(p, first_lanes(n));
#else
  Vec v{};
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
#endif
}
inline void store_part(float* p, Vec v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, first_lanes(n), v);
#else
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
#endif
}

inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
inline Vec vmin(Vec a, Vec b) { return a < b ? a : b; }

// Keeps NaN.
inline Vec clamp(Vec x, float low, float high) {
  x = x < splat(low) ? splat(low) : x;
  return x > splat(high) ? splat(high) : x;
}

#if defined(__AVX2__)
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));

// Halves of a register: of a shuffle, GCC shuffles the whole.
inline Vec4 low_half(Vec8 v) { return (Vec4)_mm256_castps256_ps128((__m256)v); }
inline Vec4 high_half(Vec8 v) { return (Vec4)_mm256_extractf128_ps((__m256)v, 1); }
#endif
#if defined(__AVX512F__)
inline Vec8 low_half(Vec v) { return (Vec8)_mm512_castps512_ps256((__m512)v); }
inline Vec8 high_half(Vec v) { return (Vec8)_mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)v, 1)); }
#endif

// Combines lanes pairwise, always in the same order.
template <typename F>
inline float combine_lanes(Vec v, const F& combine) {
#if defined(__AVX512F__)
  const Vec8 half = combine(low_half(v), high_half(v));
  const Vec4 quarter = combine(low_half(half), high_half(half));
#elif defined(__AVX2__)
  const Vec4 quarter = combine(low_half(v), high_half(v));
#else
  const Vec quarter = v;
#endif
  const auto pairs = combine(quarter, __builtin_shufflevector(quarter, quarter, 2, 3, 0, 1));
  return combine(pairs, __builtin_shufflevector(pairs, pairs, 1, 0, 2, 3))[0];
}
inline float sum(Vec v) {
  return combine_lanes(v, [](auto a, auto b) { return a + b; });
}
inline float max_lane(Vec v) {
  return combine_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// To the nearest integer, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
inline VecI round_to_int(Vec x) {
  const Vec magic = splat(12582912.f);
  return (VecI)((VecU)(x + magic) - (VecU)magic);
}

// a b likewise. The product itself is not rounded: of round_to_int(a * b) that would depend on the compiler's options.
inline VecI round_product(Vec a, Vec b) {
  const Vec magic = splat(12582912.f);
#if defined(__AVX512F__)
  const Vec sum = _mm512_fmadd_ps(a, b, magic);
#elif defined(__AVX2__)
  const Vec sum = _mm256_fmadd_ps(a, b, magic);
#else
  const Vec sum = vfmaq_f32(magic, a, b);
#endif
  return (VecI)((VecU)sum - (VecU)magic);
}

// e^x, about 1 ulp for -87.3 <= x <= 88.3; 0 below (also for -inf), saturates above, keeps NaN.
inline Vec exp(Vec x) {
  const Vec high = splat(88.37f);
  const Vec low = splat(-87.33f);
  const VecI underflow = x < low;
  x = x > high ? high : x;
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  const Vec magic = splat(12582912.f);
  const Vec shifted = x * 1.44269504088896341f + magic;
  const Vec n = shifted - magic;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  const VecU power = ((VecU)shifted - (VecU)magic + 127u) << 23;
  const Vec y = p * (Vec)power;
  return underflow ? Vec{} : y;
}

// Transposes a kVec x kVec tile held in kVec registers.
inline void transpose(Vec v[kVec]) {
#if defined(__AVX512F__)
  Vec a[16], b[16];
  for (int i = 0; i < 16; i += 4) {  // pairs of rows, then fours: a column of four rows in each quarter
    const Vec x0 = _mm512_unpacklo_ps(v[i], v[i + 1]), x1 = _mm512_unpackhi_ps(v[i], v[i + 1]);
    const Vec x2 = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), x3 = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    a[i] = _mm512_shuffle_ps(x0, x2, 0x44), a[i + 1] = _mm512_shuffle_ps(x0, x2, 0xee);
    a[i + 2] = _mm512_shuffle_ps(x1, x3, 0x44), a[i + 3] = _mm512_shuffle_ps(x1, x3, 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0x88), b[j + 4] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0xdd);
    b[j + 8] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0x88),
          b[j + 12] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0xdd);
  }
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88), v[j + 8] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0xdd);
    v[j + 4] = _mm512_shuffle_f32x4(b[j + 4], b[j + 12], 0x88),
          v[j + 12] = _mm512_shuffle_f32x4(b[j + 4], b[j + 12], 0xdd);
  }
#elif defined(__AVX2__)
#define MFT_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define MFT_HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define MFT_LOW2(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define MFT_HIGH2(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define MFT_LOW4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define MFT_HIGH4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
  const Vec a0 = MFT_LOW(v[0], v[1]), a1 = MFT_HIGH(v[0], v[1]);
  const Vec a2 = MFT_LOW(v[2], v[3]), a3 = MFT_HIGH(v[2], v[3]);
  const Vec a4 = MFT_LOW(v[4], v[5]), a5 = MFT_HIGH(v[4], v[5]);
  const Vec a6 = MFT_LOW(v[6], v[7]), a7 = MFT_HIGH(v[6], v[7]);
  const Vec b0 = MFT_LOW2(a0, a2), b1 = MFT_HIGH2(a0, a2);
  const Vec b2 = MFT_LOW2(a1, a3), b3 = MFT_HIGH2(a1, a3);
  const Vec b4 = MFT_LOW2(a4, a6), b5 = MFT_HIGH2(a4, a6);
  const Vec b6 = MFT_LOW2(a5, a7), b7 = MFT_HIGH2(a5, a7);
  v[0] = MFT_LOW4(b0, b4), v[4] = MFT_HIGH4(b0, b4);
  v[1] = MFT_LOW4(b1, b5), v[5] = MFT_HIGH4(b1, b5);
  v[2] = MFT_LOW4(b2, b6), v[6] = MFT_HIGH4(b2, b6);
  v[3] = MFT_LOW4(b3, b7), v[7] = MFT_HIGH4(b3, b7);
#undef MFT_LOW
#undef MFT_HIGH
#undef MFT_LOW2
#undef MFT_HIGH2
#undef MFT_LOW4
#undef MFT_HIGH4
#else
  const Vec a0 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Vec a1 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Vec a2 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Vec a3 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a0, a2, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a0, a2, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(a1, a3, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(a1, a3, 2, 3, 6, 7);
#endif
}

inline float half_to_float(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof(h));
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t bits = sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (mantissa << 13);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float float_at(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

inline Vec load_bytes(const uint8_t* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// kVec little-endian f16 values.
inline Vec load_half(const uint8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
#endif
}

// Rounds to nearest even; the values must lie within f16's range.
inline void store_half(uint16_t* p, Vec v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#endif
}

// kVec signed bytes as floats.
inline Vec load_int8(const uint8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  int32_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return (Vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes))))));
#endif
}

// 16 bytes widened to as many vectors as hold 16 int32, zero extended or sign extended.
constexpr int k16Vecs = 16 / kVec;
#if defined(__AVX2__)
typedef __m128i Bytes16;
inline Bytes16 load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline Bytes16 nibbles_16(const uint8_t* p) {
  const Bytes16 bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), low = _mm_set1_epi8(15);
  return _mm_unpacklo_epi64(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
}
#if defined(__AVX512F__)
inline void widen_u8(Bytes16 bytes, VecI out[k16Vecs]) { out[0] = (VecI)_mm512_cvtepu8_epi32(bytes); }
inline void widen_i8(Bytes16 bytes, VecI out[k16Vecs]) { out[0] = (VecI)_mm512_cvtepi8_epi32(bytes); }
#else
inline void widen_u8(Bytes16 bytes, VecI out[k16Vecs]) {
  out[0] = (VecI)_mm256_cvtepu8_epi32(bytes);
  out[1] = (VecI)_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes));
}
inline void widen_i8(Bytes16 bytes, VecI out[k16Vecs]) {
  out[0] = (VecI)_mm256_cvtepi8_epi32(bytes);
  out[1] = (VecI)_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes));
}
#endif
#else
typedef uint8x16_t Bytes16;
inline Bytes16 load_16(const uint8_t* p) { return vld1q_u8(p); }
inline Bytes16 nibbles_16(const uint8_t* p) {
  const uint8x8_t bytes = vld1_u8(p);
  return vcombine_u8(vand_u8(bytes, vdup_n_u8(15)), vshr_n_u8(bytes, 4));
}
inline void widen_u8(Bytes16 bytes, VecI out[k16Vecs]) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  out[0] = (VecI)vmovl_u16(vget_low_u16(low)), out[1] = (VecI)vmovl_u16(vget_high_u16(low));
  out[2] = (VecI)vmovl_u16(vget_low_u16(high)), out[3] = (VecI)vmovl_u16(vget_high_u16(high));
}
inline void widen_i8(Bytes16 bytes, VecI out[k16Vecs]) {
  const int8x16_t codes = vreinterpretq_s8_u8(bytes);
  const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_s8(vget_high_s8(codes));
  out[0] = (VecI)vmovl_s16(vget_low_s16(low)), out[1] = (VecI)vmovl_s16(vget_high_s16(low));
  out[2] = (VecI)vmovl_s16(vget_low_s16(high)), out[3] = (VecI)vmovl_s16(vget_high_s16(high));
}
#endif
inline void load_u8(const uint8_t* p, VecI out[k16Vecs]) { widen_u8(load_16(p), out); }
inline void load_i8(const uint8_t* p, VecI out[k16Vecs]) { widen_i8(load_16(p), out); }
// The low halves of 8 bytes, then their high halves.
inline void load_nibbles(const uint8_t* p, VecI out[k16Vecs]) { widen_u8(nibbles_16(p), out); }

// The low bytes.
inline void store_i8(int8_t* p, VecI v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m256i low = (__m256i)(v & 255);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
#else
  const uint16x4_t words = vmovn_u32((uint32x4_t)v);
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
  std::memcpy(p, &bytes, 4);
#endif
}

// table[index[i]] for indices 0..15.
inline Vec lookup16(const float table[16], VecI index) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
#elif defined(__AVX2__)
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)index);
  return (Vec)_mm256_blendv_ps(low, high, (__m256)(index << 28));  // bit 3 becomes the sign, which selects
#else
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(table);
  const uint8x16x4_t all = {vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)};
  return (Vec)vqtbl4q_u8(all, (uint8x16_t)(index * 0x04040404 + 0x03020100));  // the four bytes of each entry
#endif
}

inline Vec to_float(VecI v) { return __builtin_convertvector(v, Vec); }

}  // namespace mft::MFT_ISA
