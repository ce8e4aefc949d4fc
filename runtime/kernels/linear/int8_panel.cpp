#include "runtime/kernels/linear/int8_panel.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/int8_rows.h"
#include "runtime/kernels/linear/int8_vec.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Values on the way are of 16 bits, kFull the largest: codes and 8 bits behind the point.
constexpr float kFull = 256.f * kWeightMax;
constexpr float kSmallest = 1e-30f;  // of what is divided by
// To the nearest, and the offset; the high byte of the sum is what lies in the panel.
constexpr int kRound = 128 + 256 * kWeightOffset;

Vec magnitude(Vec v) { return vmax(v, -v); }

// For every format but f16, value = scale * kUnit * fixed / 32768 + middle with `fixed` the code as 16 bits, or
// scale * code + min where kLinear.
template <Code F>
struct Fixed {
  using B = Block<F>;
  static constexpr bool kNibbles = B::kColumnBytes == 8;
  static constexpr bool kLinear = F == Code::kQ4_0 || F == Code::kQ4_1;
  // fixed / 32768 of the codebooks of floats, whose largest is 1; the others have integers of 8 bits.
  static constexpr bool kUnitTable = F == Code::kNF4 || F == Code::kFP4;
  static constexpr float kUnit = kUnitTable ? 32768.f / 32767.f : 128.f;

  // Bounds of the values.
  static Vec most(const B& block, int v) {
    if constexpr (F == Code::kQ4_0) return magnitude(block.scale[v]) * 8.f;
    if constexpr (F == Code::kQ4_1)
      return vmax(magnitude(block.min[v]), magnitude(block.min[v] + block.scale[v] * 15.f));
    if constexpr (F == Code::kQ8_1)
      return vmax(magnitude(block.min[v]), magnitude(block.min[v] + block.scale[v] * 255.f));
    if constexpr (kUnitTable) return magnitude(block.scale[v]) * kUnit;
    return magnitude(block.scale[v]) * 128.f;
  }
  // What a code, or `fixed`, is multiplied by.
  static Vec factor(const B& block, int v) { return kLinear ? block.scale[v] : block.scale[v] * kUnit; }
  // What is added to the product.
  static Vec middle(const B& block, int v) {
    if constexpr (F == Code::kQ4_0) return block.scale[v] * -8.f;
    if constexpr (F == Code::kQ4_1) return block.min[v];
    if constexpr (F == Code::kQ8_1) return block.min[v] + block.scale[v] * 128.f;
    return Vec{};
  }

  struct Tables {
    uint8_t high[16], low[16];
  };
  static constexpr Tables tables() {
    Tables t{};
    if constexpr (B::kHasCodebook) {
      for (int i = 0; i < 16; ++i) {
        const float unit = kUnitTable ? 32767.f : 256.f;
        const float scaled = B::kCodebook[i] * unit;
        const int value = static_cast<int>(scaled < 0 ? scaled - 0.5f : scaled + 0.5f);
        t.high[i] = static_cast<uint8_t>((value >> 8) & 255);
        t.low[i] = static_cast<uint8_t>(value & 255);
      }
    }
    return t;
  }
  static constexpr Tables kTables = tables();

  // Values of the bytes 0, 2, 4, ... and 1, 3, 5, ...; factors and middles likewise.
  static void values(VecB codes, VecH even_factor, VecH odd_factor, VecHU even_middle, VecHU odd_middle, VecHU* even,
                     VecHU* odd) {
    const VecHU low_byte = (VecHU{} + 255), high_byte = (VecHU{} + 0xff00);
    if constexpr (kLinear) {
      *even = ((VecHU)codes & low_byte) * (VecHU)even_factor + even_middle;
      *odd = ((VecHU)codes >> 8) * (VecHU)odd_factor + odd_middle;
      return;
    }
    VecHU first, second;
    if constexpr (B::kHasCodebook) {
      const VecHU high = (VecHU)lookup_bytes(kTables.high, codes);
      first = high << 8;
      second = high & high_byte;
      if constexpr (kUnitTable) {
        const VecHU low = (VecHU)lookup_bytes(kTables.low, codes);
        first |= low & low_byte;
        second |= low >> 8;
      }
    } else {
      if constexpr (F == Code::kQ8_1) codes ^= 128;
      first = (VecHU)codes << 8;
      second = (VecHU)codes & high_byte;
    }
    *even = (VecHU)multiply_high((VecH)first, even_factor) + even_middle;
    *odd = (VecHU)multiply_high((VecH)second, odd_factor) + odd_middle;
  }
};

// a b to the nearest integers, in both halves of each lane.
VecI product_twice(Vec a, Vec b) {
  const VecI whole = round_product(a, b) & 0xffff;
  return whole | whole << 16;
}

VecB high_bytes(VecHU even, VecHU odd) { return (VecB)(even >> 8 | (odd & (VecHU{} + 0xff00))); }

typedef uint8_t B16 __attribute__((vector_size(16)));
typedef uint16_t H16 __attribute__((vector_size(16)));

// 64 bytes in four parts.
void join(const B16 parts[4], VecB out[k16Vecs]) {
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

// Pairs of bytes of each in turn.
void interleave(B16 ab, B16 cd, B16* low, B16* high) {
  *low = (B16)__builtin_shufflevector((H16)ab, (H16)cd, 0, 8, 1, 9, 2, 10, 3, 11);
  *high = (B16)__builtin_shufflevector((H16)ab, (H16)cd, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Four columns of 16 codes each as [16][4].
template <bool kNibbles>
void quads_of_columns(const uint8_t* codes, VecB out[k16Vecs]) {
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

// Columns of 16 rows, from the stored panel at column k0 on, as kVec columns of four rows each: quads[q] has rows 4 q.
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

// 16 columns of a panel: the rows of a stored panel.
template <Code F>
void load_columns(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, Int8Panel out) {
  using X = Fixed<F>;
  const int64_t group = w.format.group;
  for (int64_t k = k0; k < k0 + kc; k += kInt8Block, out.scales += kTileCols) {
    const int64_t end = std::min(k + kInt8Block, k0 + kc);
    Vec most[k16Vecs] = {};
    for (int64_t g = k / group; g * group < end; ++g) {
      const Block<F> block(block_at<F>(w, panel, g));
      for (int v = 0; v < k16Vecs; ++v) most[v] = vmax(most[v], X::most(block, v));
    }
    Vec inverse[k16Vecs];
    for (int v = 0; v < k16Vecs; ++v) {
      most[v] = vmax(most[v], splat(kSmallest));
      inverse[v] = kFull / most[v];
      store(out.scales + v * kVec, most[v] * (1.f / kWeightMax));
    }
    for (int64_t at = k; at < end;) {
      const int64_t stop = std::min(end, (at / group + 1) * group);
      const Block<F> block(block_at<F>(w, panel, at / group));
      VecH factor[k16Vecs];
      VecHU middle[k16Vecs];
      for (int v = 0; v < k16Vecs; ++v) {
        factor[v] = (VecH)product_twice(X::factor(block, v), inverse[v]);
        middle[v] = (VecHU)product_twice(X::middle(block, v), inverse[v]) + kRound;
      }
      const uint8_t* codes = block.codes + at % group * Block<F>::kColumnBytes;
      for (; at < stop; at += kDepth, out.codes += kDepth * kTileCols) {
        VecB bytes[k16Vecs][kQuads];
        for (int q = 0; q < kQuads; ++q, codes += 4 * Block<F>::kColumnBytes) {
          VecB quads[k16Vecs];
          quads_of_columns<X::kNibbles>(codes, quads);
          for (int v = 0; v < k16Vecs; ++v) {
            VecHU even, odd;
            X::values(quads[v], factor[v], factor[v], middle[v], middle[v], &even, &odd);
            bytes[v][q] = high_bytes(even, odd);
          }
        }
        for (int v = 0; v < k16Vecs; ++v) store_columns(out.codes + v * kVec * kDepth, bytes[v]);
      }
    }
  }
}

// The largest magnitude of both halves of each lane.
Vec largest_of(VecH pairs) {
  const VecI both = (VecI)pairs;
  const VecI low = both & 0xffff, high = both >> 16 & 0xffff;
  return to_float(low > high ? low : high);
}

VecH magnitude(VecHU values) {
  const VecH v = (VecH)values, minus = (VecH)(-values);  // as unsigned numbers, or the least had no negative
  return v > minus ? v : minus;
}

// 16 columns of a panel of W itself, from the stored panels of rows [n0, n0 + nc).
template <Code F>
void load_rows(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, Int8Panel out) {
  using X = Fixed<F>;
  const int64_t group = k0 / w.format.group, column = k0 % w.format.group;
  // All rows against the block's largest bound at first, with 15 bits, then each column against its own largest.
  constexpr float kWhole = 32600.f;
  alignas(64) VecHU values[kInt8Block / 4][k16Vecs][2];
  for (int64_t n = n0; n < n0 + nc; n += kInt8Block, out.scales += kTileCols) {
    const int64_t end = std::min(n + kInt8Block, round_up(n0 + nc, kPanelRows));
    Vec bound = splat(kSmallest);
    for (int64_t panel = n / kPanelRows; panel * kPanelRows < end; ++panel) {
      const Block<F> block(block_at<F>(w, panel, group));
      for (int v = 0; v < k16Vecs; ++v) bound = vmax(bound, X::most(block, v));
    }
    const float most = max_lane(bound);
    VecH largest[k16Vecs] = {};
    int64_t step = 0;
    for (int64_t panel = n / kPanelRows; panel * kPanelRows < end; ++panel) {
      const Block<F> block(block_at<F>(w, panel, group));
      // By row; the four rows of a lane's bytes are two pairs, (0, 2) and (1, 3).
      alignas(64) int32_t factors[kPanelRows], middles[kPanelRows];
      for (int v = 0; v < k16Vecs; ++v) {
        const Vec inverse = splat(kWhole / most);
        const VecI factor = round_product(X::factor(block, v), inverse),
                   middle = round_product(X::middle(block, v), inverse);
        std::memcpy(factors + v * kVec, &factor, sizeof(factor));
        std::memcpy(middles + v * kVec, &middle, sizeof(middle));
      }
      VecB quads[k16Vecs][4];
      const uint8_t* codes = block.codes + column * Block<F>::kColumnBytes;
      for (int v = 0; v < k16Vecs; ++v) quads_of_rows<X::kNibbles>(codes + v * kVec * Block<F>::kColumnBytes, quads[v]);
      for (int q = 0; q < 4; ++q, ++step) {
        const auto pair = [&](const int32_t* of, int i) {
          return (VecI)(VecU{} + ((of[4 * q + i] & 0xffffu) | static_cast<uint32_t>(of[4 * q + i + 2]) << 16));
        };
        const VecH even_factor = (VecH)pair(factors, 0), odd_factor = (VecH)pair(factors, 1);
        const VecHU even_middle = (VecHU)pair(middles, 0), odd_middle = (VecHU)pair(middles, 1);
        for (int v = 0; v < k16Vecs; ++v) {
          VecHU* both = values[step][v];
          X::values(quads[v][q], even_factor, odd_factor, even_middle, odd_middle, &both[0], &both[1]);
          const VecH even = magnitude(both[0]), odd = magnitude(both[1]), more = even > odd ? even : odd;
          largest[v] = largest[v] > more ? largest[v] : more;
        }
      }
    }
    for (int v = 0; v < k16Vecs; ++v) {
      const Vec column_most = vmax(largest_of(largest[v]), splat(kWeightMax + 1.f));
      // Rounded down, so that no code exceeds kWeightMax.
      const VecI ratio = __builtin_convertvector(32768.f * kWeightMax / column_most, VecI);
      store(out.scales + v * kVec, (most / kWhole * 32768.f) / to_float(ratio));
      const VecH by = (VecH)(ratio | ratio << 16);
      for (int64_t s = 0; s < step; s += kQuads) {
        VecB bytes[kQuads];
        for (int q = 0; q < kQuads; ++q) {
          const VecHU even = (VecHU)multiply_high((VecH)values[s + q][v][0], by),
                      odd = (VecHU)multiply_high((VecH)values[s + q][v][1], by);
          bytes[q] = (VecB)((even & (VecHU{} + 255)) | odd << 8) + static_cast<uint8_t>(kWeightOffset);
        }
        store_columns(out.codes + s * 4 * kTileCols + v * kVec * kDepth, bytes);
      }
    }
    out.codes += step * 4 * kTileCols;
  }
}

// Four of a column's values, a row after the other, as bytes of the panel in one lane.
VecB quad_of_floats(const float* values, Vec inverse) {
  // Summed before the offset takes out their signs, which borrow from the byte above.
  constexpr unsigned kUnsigned = kWeightOffset > 0 ? kWeightOffset : 128;
  VecU sum = VecU{} + 0x01010101u * kUnsigned;
  for (int j = 0; j < 4; ++j) sum += (VecU)round_product(load(values + j * kPanelRows), inverse) << (8 * j);
  return kWeightOffset > 0 ? (VecB)sum : (VecB)sum ^ 128;
}

// Values that are floats themselves.
template <>
void load_columns<Code::kF16>(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, Int8Panel out) {
  alignas(64) float rows[kInt8Block][kPanelRows];
  const int64_t group = w.format.group;
  for (int64_t k = k0; k < k0 + kc; k += kInt8Block, out = out.next()) {
    const int64_t count = std::min(kInt8Block, k0 + kc - k);
    Vec most[k16Vecs];
    for (Vec& each : most) each = splat(kSmallest);
    for (int64_t i = 0; i < count; ++i) {
      const Block<Code::kF16> block(block_at<Code::kF16>(w, panel, (k + i) / group));
      Vec values[k16Vecs];
      block.column((k + i) % group, values);
      for (int v = 0; v < k16Vecs; ++v) {
        most[v] = vmax(most[v], magnitude(values[v]));
        store(rows[i] + v * kVec, values[v]);
      }
    }
    for (int v = 0; v < k16Vecs; ++v) {
      const Vec inverse = static_cast<float>(kWeightMax) / most[v];
      store(out.scales + v * kVec, most[v] * (1.f / kWeightMax));
      for (int64_t i = 0; i < count; i += kDepth) {
        VecB bytes[kQuads];
        for (int q = 0; q < kQuads; ++q) bytes[q] = quad_of_floats(rows[i + 4 * q] + v * kVec, inverse);
        store_columns(out.codes + i * kTileCols + kDepth * v * kVec, bytes);
      }
    }
  }
}

template <>
void load_rows<Code::kF16>(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, Int8Panel out) {
  const int64_t group = k0 / w.format.group, column = k0 % w.format.group;
  for (int64_t n = n0; n < n0 + nc; n += kInt8Block, out.scales += kTileCols) {
    const int64_t first = n / kPanelRows, panels = ceil_div(std::min(kInt8Block, n0 + nc - n), kPanelRows);
    const auto each = [&](const auto& f) {  // f(panel, column, values of its rows)
      for (int64_t i = 0; i < panels; ++i) {
        const Block<Code::kF16> block(block_at<Code::kF16>(w, first + i, group));
        for (int64_t j = 0; j < kPanelRows; ++j) {
          Vec values[k16Vecs];
          block.column(column + j, values);
          f(i, j, values);
        }
      }
    };
    Vec most[kPanelRows] = {};
    each([&](int64_t, int64_t j, const Vec* values) {
      for (int v = 0; v < k16Vecs; ++v) most[j] = vmax(most[j], magnitude(values[v]));
    });
    float inverse[kPanelRows];
    for (int64_t j = 0; j < kPanelRows; ++j) {
      const float largest = std::max(max_lane(most[j]), kSmallest);
      inverse[j] = static_cast<float>(kWeightMax) / largest;
      out.scales[j] = largest * (1.f / kWeightMax);
    }
    alignas(64) int8_t codes[kPanelRows][kPanelRows];
    each([&](int64_t i, int64_t j, const Vec* values) {
      for (int v = 0; v < k16Vecs; ++v)
        store_i8(codes[j] + v * kVec, round_product(values[v], splat(inverse[j])) + kWeightOffset);
      if (j + 1 < kPanelRows) return;
      for (int v = 0; v < k16Vecs; ++v) {
        VecB quads[4];
        quads_of_rows<false>(reinterpret_cast<const uint8_t*>(codes[v * kVec]), quads);
        for (int q = 0; q < 4; q += kQuads) {
          store_columns(out.codes + (4 * i + q) * 4 * kTileCols + v * kVec * kDepth, quads + q);
        }
      }
    });
    out.codes += panels * kPanelRows * kTileCols;
  }
}

}  // namespace

void load_int8_panel(const PackedWeight& w, int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) {
  with_code(w.format.code, [&](auto f) {
    for (int64_t j = 0; j < nr; j += kPanelRows) {
      load_columns<decltype(f)::value>(w, (n0 + j) / kPanelRows, k0, kc, out.at(j));
    }
  });
}

void load_int8_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, int64_t kr, Int8Panel out) {
  with_code(w.format.code, [&](auto f) {
    for (int64_t j = 0; j < kr; j += kPanelRows) load_rows<decltype(f)::value>(w, n0, nc, k0 + j, out.at(j));
  });
}

}  // namespace mft::MFT_ISA
