#pragma once

// One block of a packed weight, 16 rows by a group of columns, for what decodes it.

#include <cstdint>
#include <type_traits>

#include "runtime/formats/codebooks.h"
#include "runtime/formats/format.h"
#include "runtime/platform/vec.h"

// A code that a switch here forgot would be decoded as another.
#pragma GCC diagnostic error "-Wswitch"

namespace mft::MFT_ISA {

constexpr int kPanelVecs = kPanelRows / kVec;

// Decodes columns of one block; scales and minima stay in registers.
template <Code F>
struct Block {
  static constexpr const float* kCodebook = codebook_of(F);
  // Comparing the pointer is no constant expression to GCC under its undefined-behaviour sanitizer.
  static constexpr bool kHasCodebook = F == Code::kNF4 || F == Code::kFP4 || F == Code::kIQ4NL;
  static constexpr bool kHasScale = F != Code::kF16;
  static constexpr bool kHasMin = F == Code::kQ4_1 || F == Code::kQ8_1;
  static constexpr int kScaleBytes = F == Code::kNF4 || F == Code::kFP4 ? 4 : 2;
  static constexpr int kHeader = traits_of(F).header_bytes;
  static_assert(kHeader == kScaleBytes * kPanelRows * (int{kHasScale} + int{kHasMin}));
  static constexpr int kColumnBytes = traits_of(F).column_bytes;

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
    if constexpr (F == Code::kF16) {
      const uint8_t* p = codes + k * 2 * kPanelRows;
      for (int v = 0; v < kPanelVecs; ++v) out[v] = load_half(p + 2 * kVec * v);
    } else if constexpr (F == Code::kQ8_0) {
      VecI q[kPanelVecs];
      load_i8(codes + k * kPanelRows, q);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v];
    } else if constexpr (F == Code::kQ8_1) {
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
          static_assert(F == Code::kQ4_0);
          out[v] = to_float(q[v] - 8) * scale[v];
        }
      }
    }
  }

  // One value; j is the row in the panel.
  static float at(const uint8_t* p, int64_t j, int64_t k) {
    const uint8_t* codes = p + kHeader;
    if constexpr (F == Code::kF16) {
      return half_to_float(codes + 2 * (k * kPanelRows + j));
    } else {
      const float scale = kScaleBytes == 4 ? float_at(p + 4 * j) : half_to_float(p + 2 * j);
      if constexpr (F == Code::kQ8_0) {
        return scale * static_cast<float>(static_cast<int8_t>(codes[k * kPanelRows + j]));
      } else if constexpr (F == Code::kQ8_1) {
        return scale * static_cast<float>(codes[k * kPanelRows + j]) + half_to_float(p + 2 * (kPanelRows + j));
      } else {
        const int code = (codes[k * 8 + j % 8] >> (j < 8 ? 0 : 4)) & 15;
        if constexpr (kHasCodebook) {
          return scale * kCodebook[code];
        } else if constexpr (kHasMin) {
          return scale * static_cast<float>(code) + half_to_float(p + 2 * (kPanelRows + j));
        } else {
          static_assert(F == Code::kQ4_0);
          return scale * static_cast<float>(code - 8);
        }
      }
    }
  }
};

// Calls f with the code as a compile-time constant.
template <typename Fn>
auto with_code(Code code, const Fn& f) {
  switch (code) {
    case Code::kQ4_0:
      return f(std::integral_constant<Code, Code::kQ4_0>{});
    case Code::kQ4_1:
      return f(std::integral_constant<Code, Code::kQ4_1>{});
    case Code::kQ8_0:
      return f(std::integral_constant<Code, Code::kQ8_0>{});
    case Code::kQ8_1:
      return f(std::integral_constant<Code, Code::kQ8_1>{});
    case Code::kNF4:
      return f(std::integral_constant<Code, Code::kNF4>{});
    case Code::kFP4:
      return f(std::integral_constant<Code, Code::kFP4>{});
    case Code::kIQ4NL:
      return f(std::integral_constant<Code, Code::kIQ4NL>{});
    case Code::kF16:
      return f(std::integral_constant<Code, Code::kF16>{});
  }
  __builtin_unreachable();
}

template <Code F>
const uint8_t* block_at(const PackedWeight& w, int64_t panel, int64_t group) {
  const int64_t bytes = Block<F>::kHeader + w.format.group * Block<F>::kColumnBytes;
  return w.data + (panel * (w.cols / w.format.group) + group) * bytes;
}

}  // namespace mft::MFT_ISA
