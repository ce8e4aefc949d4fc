#include "runtime/kernels/quant.h"

#include <algorithm>

#include "runtime/kernels/vec.h"

namespace mft {
namespace {

constexpr int kPanelVecs = kPanelRows / kVec;

// The 16 values of bitsandbytes' codebooks.
constexpr float kNF4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};
constexpr float kFP4[16] = {0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  0.5f,  2.0f / 12,  0.25f,
                            0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f};

// Decodes columns of one block; scales and minima stay in registers.
template <Code F>
struct Block {
  static constexpr bool kHasCodebook = F == Code::kNF4 || F == Code::kFP4;
  static constexpr bool kHasScale = F != Code::kF16;
  static constexpr bool kHasMin = F == Code::kQ4_1;
  static constexpr int kScaleBytes = kHasCodebook ? 4 : 2;
  static constexpr int kHeader = kScaleBytes * kPanelRows * (int{kHasScale} + int{kHasMin});
  static constexpr int kColumnBytes = F == Code::kF16 ? 32 : F == Code::kQ8_0 ? 16 : 8;
  static constexpr const float* kCodebook = F == Code::kFP4 ? kFP4 : kNF4;

  const uint8_t* codes;
  Vec scale[kPanelVecs];
  Vec min[kPanelVecs];

  explicit Block(const uint8_t* p) : codes(p + kHeader) {
    for (int v = 0; v < kPanelVecs; ++v) {
      if constexpr (kHasCodebook) {
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
      load_i8(codes + k * kPanelRows + 8, q + kBytesVecs);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v];
    } else {
      VecI q[kBytesVecs];
      load_u8(codes + k * 8, q);
      for (int v = 0; v < kBytesVecs; ++v) {
        const int high = v + kBytesVecs;
        if constexpr (kHasCodebook) {
          out[v] = lookup16(kCodebook, q[v] & 15) * scale[v];
          out[high] = lookup16(kCodebook, q[v] >> 4) * scale[high];
        } else if constexpr (kHasMin) {
          out[v] = to_float(q[v] & 15) * scale[v] + min[v];
          out[high] = to_float(q[v] >> 4) * scale[high] + min[high];
        } else {
          out[v] = to_float((q[v] & 15) - 8) * scale[v];
          out[high] = to_float((q[v] >> 4) - 8) * scale[high];
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
      const float scale = kHasCodebook ? float_at(p + 4 * j) : half_to_float(p + 2 * j);
      if constexpr (F == Code::kQ8_0) {
        return scale * static_cast<float>(static_cast<int8_t>(codes[k * kPanelRows + j]));
      } else {
        const int code = (codes[k * 8 + j % 8] >> (j < 8 ? 0 : 4)) & 15;
        if constexpr (kHasCodebook) return scale * kCodebook[code];
        if constexpr (kHasMin) {
          return scale * static_cast<float>(code) + half_to_float(p + 2 * (kPanelRows + j));
        }
        return scale * static_cast<float>(code - 8);
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
    case Code::kNF4:
      return f(std::integral_constant<Code, Code::kNF4>{});
    case Code::kFP4:
      return f(std::integral_constant<Code, Code::kFP4>{});
    default:
      return f(std::integral_constant<Code, Code::kF16>{});
  }
}

template <Code F>
const uint8_t* block_at(const PackedWeight& w, int64_t panel, int64_t group) {
  const int64_t bytes = Block<F>::kHeader + w.format.group * Block<F>::kColumnBytes;
  return w.data + (panel * (w.cols / w.format.group) + group) * bytes;
}

template <Code F>
void panel_forward(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out) {
  const int64_t size = w.format.group;
  const int64_t end = k0 + kc;
  for (int64_t k = k0; k < end;) {
    const int64_t group = k / size;
    const int64_t stop = std::min(end, (group + 1) * size);
    const Block<F> block(block_at<F>(w, panel, group));
    for (; k < stop; ++k, out += kPanelRows) {
      Vec v[kPanelVecs];
      block.column(k - group * size, v);
      for (int i = 0; i < kPanelVecs; ++i) store(out + i * kVec, v[i]);
    }
  }
}

template <Code F>
void panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out) {
  const int64_t group = k0 / w.format.group;
  const int64_t column = k0 % w.format.group;
  constexpr int64_t kAhead = Block<F>::kHeader + kPanelRows * Block<F>::kColumnBytes;
  for (int64_t n = 0; n < nc; n += kPanelRows, out += kPanelRows * kPanelRows) {
    const Block<F> block(block_at<F>(w, (n0 + n) / kPanelRows, group));
    // The next panel's codes lie behind these, one row of blocks from its neighbours: too far for the processor to see.
    for (int64_t byte = 0; byte < kAhead; byte += 64) {
      __builtin_prefetch(block.codes + (column + kPanelRows) * Block<F>::kColumnBytes + byte);
    }
    for (int k = 0; k < kPanelRows; k += kVec) {
      Vec tile[kPanelVecs][kVec];
      for (int i = 0; i < kVec; ++i) {
        Vec v[kPanelVecs];
        block.column(column + k + i, v);
        for (int r = 0; r < kPanelVecs; ++r) tile[r][i] = v[r];
      }
      for (int r = 0; r < kPanelVecs; ++r) {
        transpose(tile[r]);
        for (int i = 0; i < kVec; ++i) store(out + (r * kVec + i) * kPanelRows + k, tile[r][i]);
      }
    }
  }
}

template <Code F>
void row_values(const PackedWeight& w, int64_t row, float* out) {
  const int64_t size = w.format.group;
  for (int64_t group = 0; group < w.cols / size; ++group) {
    const uint8_t* p = block_at<F>(w, row / kPanelRows, group);
    for (int64_t k = 0; k < size; ++k) *out++ = Block<F>::at(p, row % kPanelRows, k);
  }
}

}  // namespace

size_t Format::block_bytes() const {
  return with_code(code, [&](auto f) {
    return static_cast<size_t>(Block<decltype(f)::value>::kHeader + group * Block<decltype(f)::value>::kColumnBytes);
  });
}

bool parse_format(std::string_view name, Format* format) {
  const size_t suffix = name.find("_g");
  const std::string_view code = name.substr(0, suffix);
  const std::string_view group = suffix == std::string_view::npos ? "" : name.substr(suffix + 2);
  format->group = group == "128" ? 128 : group == "64" ? 64 : 32;
  if (suffix != std::string_view::npos && format->group == 32) return false;
  if (code == "q4_0") {
    format->code = Code::kQ4_0;
  } else if (code == "q4_1") {
    format->code = Code::kQ4_1;
  } else if (code == "q8_0") {
    format->code = Code::kQ8_0;
  } else if (code == "nf4") {
    format->code = Code::kNF4;
  } else if (code == "fp4") {
    format->code = Code::kFP4;
  } else if (name == "f16") {
    format->code = Code::kF16;
  } else {
    return false;
  }
  return true;
}

void decode_panel(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out) {
  with_code(w.format.code, [&](auto f) { panel_forward<decltype(f)::value>(w, panel, k0, kc, out); });
}

void decode_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out) {
  with_code(w.format.code, [&](auto f) { panel_transposed<decltype(f)::value>(w, n0, nc, k0, out); });
}

void decode_row(const PackedWeight& w, int64_t row, float* out) {
  with_code(w.format.code, [&](auto f) { row_values<decltype(f)::value>(w, row, out); });
}

}  // namespace mft
