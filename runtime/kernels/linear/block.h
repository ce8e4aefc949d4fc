#pragma once

// One block of a packed weight, 16 rows by a group of columns, for what decodes it.

#include <cstdint>
#include <iterator>
#include <type_traits>

#include "runtime/formats/format.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

constexpr int kPanelVecs = kPanelRows / kVec;

// Decodes columns of one block; scales and minima stay in registers.
template <Code F>
struct Block {
  static constexpr CodeTraits kTraits = traits_of(F);
  static constexpr const float* kCodebook = kTraits.codebook;
  static constexpr bool kHasCodebook = kTraits.has_codebook();
  static constexpr bool kHasScale = kTraits.levels != Levels::kFloat16;
  static constexpr bool kHasMin = kTraits.levels == Levels::kAffine;
  static constexpr bool kBytes = kTraits.bits == 8;
  static constexpr int kScaleBytes = kTraits.scale_bytes();
  static constexpr int kHeader = kTraits.header_bytes();
  static constexpr int kColumnBytes = kTraits.column_bytes();

  const uint8_t* codes;
  Vec scale[kPanelVecs];
  Vec min[kPanelVecs];

  explicit Block(const uint8_t* p) : codes(p + kHeader) {
    for (int v = 0; v < kPanelVecs; ++v) {
      if constexpr (kScaleBytes == 4) {
        scale[v] = load_bytes(p + 4 * kVec * v);
      } else if constexpr (kHasScale) {
        scale[v] = load_half(p + 2 * kVec * v);
      }
      if constexpr (kHasMin) min[v] = load_half(p + 2 * kPanelRows + 2 * kVec * v);
    }
  }

  void column(int64_t k, Vec out[kPanelVecs]) const {
    if constexpr (!kHasScale) {
      const uint8_t* p = codes + k * 2 * kPanelRows;
      for (int v = 0; v < kPanelVecs; ++v) out[v] = load_half(p + 2 * kVec * v);
    } else if constexpr (kBytes && !kHasMin) {
      VecI q[kPanelVecs];
      load_i8(codes + k * kPanelRows, q);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v];
    } else if constexpr (kBytes) {
      VecI q[kPanelVecs];
      load_u8(codes + k * kPanelRows, q);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v] + min[v];
    } else {
      VecI q[kPanelVecs];
      load_nibbles(codes + k * 8, q);
      for (int v = 0; v < kPanelVecs; ++v) {
        if constexpr (kHasCodebook) {
          out[v] = lookup16(kCodebook, q[v]) * scale[v];
        } else if constexpr (kHasMin) {
          out[v] = to_float(q[v]) * scale[v] + min[v];
        } else {
          out[v] = to_float(q[v] - 8) * scale[v];
        }
      }
    }
  }

  // One value; j is the row in the panel.
  static float at(const uint8_t* p, int64_t j, int64_t k) {
    const uint8_t* codes = p + kHeader;
    if constexpr (!kHasScale) {
      return half_to_float(codes + 2 * (k * kPanelRows + j));
    } else {
      const float scale = kScaleBytes == 4 ? float_at(p + 4 * j) : half_to_float(p + 2 * j);
      if constexpr (kBytes && !kHasMin) {
        return scale * static_cast<float>(static_cast<int8_t>(codes[k * kPanelRows + j]));
      } else if constexpr (kBytes) {
        return scale * static_cast<float>(codes[k * kPanelRows + j]) + half_to_float(p + 2 * (kPanelRows + j));
      } else {
        const int code = (codes[k * 8 + j % 8] >> (j < 8 ? 0 : 4)) & 15;
        if constexpr (kHasCodebook) {
          return scale * kCodebook[code];
        } else if constexpr (kHasMin) {
          return scale * static_cast<float>(code) + half_to_float(p + 2 * (kPanelRows + j));
        } else {
          return scale * static_cast<float>(code - 8);
        }
      }
    }
  }
};

// Calls f with the code as a compile-time constant.
template <size_t I = 0, typename Fn>
auto with_code(Code code, const Fn& f) {
  if constexpr (I + 1 < std::size(kCodes)) {
    if (code != kCodes[I].code) return with_code<I + 1>(code, f);
  }
  return f(std::integral_constant<Code, kCodes[I].code>{});
}

template <Code F>
const uint8_t* block_at(const PackedWeight& w, int64_t panel, int64_t group) {
  const int64_t bytes = Block<F>::kHeader + w.format.group * Block<F>::kColumnBytes;
  return w.data + (panel * (w.cols / w.format.group) + group) * bytes;
}

}  // namespace mft::MFT_ISA
