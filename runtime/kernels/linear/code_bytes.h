#pragma once

// Codes of packed weights as the bytes that products in 15 bits multiply, and what a block's sums of products add to
// the result.

#include <cstdint>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/int15_rows.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

// The form of a format's bytes: value = scale * kUnit * (byte - kOffset) + minimum. Fractions take two bytes: scale *
// kUnit * (byte + rest / kRests), the rest from 0 to kRests. In one they would be off by 0.4 %.
template <int32_t kByteOffset, bool kSmallCodes, bool kRest, bool kMin>
struct ByteForm {
  static constexpr int32_t kOffset = kByteOffset;
  static constexpr bool kSmall = kSmallCodes;  // codes 0 to 15, of which sums of products fit 16 bits
  static constexpr bool kHasRest = kRest;
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kRests = 127;
  static constexpr float kUnit = kHasRest ? 1.f / 127.f : 1.f;
};

// vpdpbusd wants bytes without a sign.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int32_t kSignedOffset = 128;
#else
constexpr int32_t kSignedOffset = 0;
#endif

template <Code F>
constexpr bool kSmallCodes = !Block<F>::kBytes && !Block<F>::kHasCodebook;
template <Code F>
constexpr int32_t kOffsetOf = !kSmallCodes<F>     ? kSignedOffset
                              : Block<F>::kHasMin ? 0
                                                  : 8;
template <Code F>
using FormOf =
    ByteForm<kOffsetOf<F>, kSmallCodes<F>, Block<F>::kTraits.levels == Levels::kFractions, Block<F>::kHasMin>;

template <Code F>
struct Bytes : FormOf<F> {
  using B = Block<F>;
  using Form = FormOf<F>;

  struct Tables {
    uint8_t bytes[16], rests[16];
  };
  static constexpr Tables tables() {
    Tables t{};
    if constexpr (B::kHasCodebook) {
      for (int i = 0; i < 16; ++i) {
        const float scaled = B::kCodebook[i] / Form::kUnit;
        int byte = static_cast<int>(scaled);  // rounded down, once one below
        if (static_cast<float>(byte) > scaled) --byte;
        t.bytes[i] = static_cast<uint8_t>(byte);
        t.rests[i] = static_cast<uint8_t>((scaled - static_cast<float>(byte)) * Form::kRests + 0.5f);
      }
    }
    return t;
  }
  static constexpr Tables kTables = tables();

  static VecB rests_of(VecB codes) { return lookup_bytes(kTables.rests, codes); }
  // With kOffset; without a sign where that is 128 or codes are small.
  static VecB of(VecB codes) {
    if constexpr (B::kHasCodebook) codes = lookup_bytes(kTables.bytes, codes);
    if constexpr (B::kBytes && B::kHasMin) codes ^= 128;  // bytes without a sign as signed ones
    return Form::kOffset == 128 ? codes ^ 128 : codes;
  }
  static Vec minimum(const B& block, int v) {
    if constexpr (B::kHasMin && B::kBytes) return block.min[v] + block.scale[v] * 128.f;
    if constexpr (B::kHasMin) return block.min[v];
    return Vec{};
  }
};

// What sums of rests with the first part of x add to sums with its second part.
template <typename Form>
constexpr int32_t kRestsInSecond = Int15Rows::kSecondPart / Form::kRests;
static_assert(Int15Rows::kSecondPart % ByteForm<0, false, true, false>::kRests == 0);

// Adds a block to y: the sum of products of byte - kOffset with x as whole numbers, rounded once; `codes` is the sum of
// these numbers, and x_scale their scale.
template <typename Form>
[[gnu::always_inline]] inline void add_block(Vec whole, int32_t codes, float x_scale, Vec scale, Vec minimum, Vec& y) {
  y += whole * (scale * (x_scale * Form::kUnit));
  if constexpr (Form::kHasMin) y += minimum * (x_scale * static_cast<float>(codes));
}

}  // namespace mft::MFT_ISA
