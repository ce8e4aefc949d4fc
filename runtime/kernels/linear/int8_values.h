#pragma once

// Codes of packed weights as numbers of 16 bits, from which the codes of an 8-bit panel are rounded.
//
// A weight is scale * value(code) + minimum, in float32. Relative to the scale s of its column in the panel it is
//
//   weight / s = (factor * fixed(code)) / 2^15 + middle
//
// with factor = scale * unit / s and middle = minimum / s, both rounded to 16 bits, and fixed(code) a number of 16
// bits: the code itself, shifted to the top, or the value in the codebook. The product is one instruction
// (multiply_high). Formats whose codes are small (q4_0, q4_1) multiply the code by the factor without the division.

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

constexpr float kSmallest = 1e-30f;  // magnitude that a scale is computed from, so that nothing is divided by 0

inline Vec magnitude(Vec v) { return vmax(v, -v); }

// For every format but f16: value = scale * kUnit * fixed / 32768 + middle, or scale * code + min if kLinear.
template <Code F>
struct Fixed {
  using B = Block<F>;
  static constexpr bool kNibbles = !B::kBytes;
  static constexpr bool kLinear = kNibbles && !B::kHasCodebook;
  static constexpr bool kUnitTable = B::kTraits.levels == Levels::kFractions;
  static constexpr float kLargestCode = kNibbles ? 15.f : 255.f;
  static constexpr float kUnit = kUnitTable ? 32768.f / 32767.f : 128.f;

  // A bound of the magnitude of the values in a block.
  static Vec most(const B& block, int v) {
    if constexpr (B::kHasMin) {
      return vmax(magnitude(block.min[v]), magnitude(block.min[v] + block.scale[v] * kLargestCode));
    }
    return magnitude(block.scale[v]) * (kUnitTable ? kUnit : kLinear ? 8.f : 128.f);
  }
  // The factor of the code (kLinear) or of `fixed`.
  static Vec factor(const B& block, int v) { return kLinear ? block.scale[v] : block.scale[v] * kUnit; }
  // The summand.
  static Vec middle(const B& block, int v) {
    if constexpr (B::kHasMin && kLinear) return block.min[v];
    if constexpr (B::kHasMin) return block.min[v] + block.scale[v] * 128.f;
    return kLinear ? block.scale[v] * -8.f : Vec{};
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

  // The values of the bytes 0, 2, 4, ... of `codes` and of the bytes 1, 3, 5, ..., each with its factor and middle.
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
      if constexpr (B::kHasMin) codes ^= 128;  // unsigned bytes as signed ones
      first = (VecHU)codes << 8;
      second = (VecHU)codes & high_byte;
    }
    *even = (VecHU)multiply_high((VecH)first, even_factor) + even_middle;
    *odd = (VecHU)multiply_high((VecH)second, odd_factor) + odd_middle;
  }
};

}  // namespace mft::MFT_ISA
