#include "runtime/kernels/quant.h"

#include <algorithm>

#include "runtime/kernels/vec.h"

namespace mft {
namespace {

constexpr int kPanelVecs = kPanelRows / kVec;

constexpr size_t bytes_of(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return 288;
    case Format::kQ4_1:
      return 320;
    case Format::kQ8_0:
      return 544;
    case Format::kF16:
      return 1024;
  }
  return 0;
}

// Decodes columns of one block; scales and minima stay in registers.
template <Format F>
struct Block {
  static constexpr bool kHasScale = F != Format::kF16;
  static constexpr bool kHasMin = F == Format::kQ4_1;
  static constexpr int kHeader = 2 * kPanelRows * (int{kHasScale} + int{kHasMin});

  const uint8_t* codes;
  Vec scale[kPanelVecs];
  Vec min[kPanelVecs];

  explicit Block(const uint8_t* p) : codes(p + kHeader) {
    for (int v = 0; v < kPanelVecs; ++v) {
      if constexpr (kHasScale) scale[v] = load_half(p + 2 * kVec * v);
      if constexpr (kHasMin) min[v] = load_half(p + 2 * kPanelRows + 2 * kVec * v);
    }
  }

  void column(int64_t k, Vec out[kPanelVecs]) const {
    if constexpr (F == Format::kF16) {
      const uint8_t* p = codes + k * 2 * kPanelRows;
      for (int v = 0; v < kPanelVecs; ++v) out[v] = load_half(p + 2 * kVec * v);
    } else if constexpr (F == Format::kQ8_0) {
      VecI q[kPanelVecs];
      load_i8(codes + k * kPanelRows, q);
      load_i8(codes + k * kPanelRows + 8, q + kBytesVecs);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v];
    } else {
      VecI q[kBytesVecs];
      load_u8(codes + k * 8, q);
      for (int v = 0; v < kBytesVecs; ++v) {
        const int high = v + kBytesVecs;
        if constexpr (kHasMin) {
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
    if constexpr (F == Format::kF16) {
      return half_to_float(codes + 2 * (k * kPanelRows + j));
    } else {
      const float scale = half_to_float(p + 2 * j);
      if constexpr (F == Format::kQ8_0) {
        return scale * static_cast<float>(static_cast<int8_t>(codes[k * kPanelRows + j]));
      } else {
        const int code = (codes[k * 8 + j % 8] >> (j < 8 ? 0 : 4)) & 15;
        if constexpr (kHasMin) {
          return scale * static_cast<float>(code) + half_to_float(p + 2 * (kPanelRows + j));
        }
        return scale * static_cast<float>(code - 8);
      }
    }
  }
};

// Calls f with the format as a compile-time constant.
template <typename Fn>
void with_format(Format format, const Fn& f) {
  switch (format) {
    case Format::kQ4_0:
      return f(std::integral_constant<Format, Format::kQ4_0>{});
    case Format::kQ4_1:
      return f(std::integral_constant<Format, Format::kQ4_1>{});
    case Format::kQ8_0:
      return f(std::integral_constant<Format, Format::kQ8_0>{});
    case Format::kF16:
      return f(std::integral_constant<Format, Format::kF16>{});
  }
}

template <Format F>
const uint8_t* block_at(const PackedWeight& w, int64_t panel, int64_t group) {
  return w.data + (panel * (w.cols / kGroup) + group) * static_cast<int64_t>(bytes_of(F));
}

template <Format F>
void panel_forward(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out) {
  const int64_t end = k0 + kc;
  for (int64_t k = k0; k < end;) {
    const int64_t group = k / kGroup;
    const int64_t stop = std::min(end, (group + 1) * kGroup);
    const Block<F> block(block_at<F>(w, panel, group));
    for (; k < stop; ++k, out += kPanelRows) {
      Vec v[kPanelVecs];
      block.column(k - group * kGroup, v);
      for (int i = 0; i < kPanelVecs; ++i) store(out + i * kVec, v[i]);
    }
  }
}

template <Format F>
void panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out) {
  const int64_t group = k0 / kGroup;
  const int64_t column = k0 % kGroup;
  for (int64_t n = 0; n < nc; n += kPanelRows, out += kPanelRows * kPanelRows) {
    const Block<F> block(block_at<F>(w, (n0 + n) / kPanelRows, group));
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

template <Format F>
void row_values(const PackedWeight& w, int64_t row, float* out) {
  for (int64_t group = 0; group < w.cols / kGroup; ++group) {
    const uint8_t* p = block_at<F>(w, row / kPanelRows, group);
    for (int64_t k = 0; k < kGroup; ++k) *out++ = Block<F>::at(p, row % kPanelRows, k);
  }
}

}  // namespace

size_t block_bytes(Format format) { return bytes_of(format); }

bool parse_format(std::string_view name, Format* format) {
  if (name == "q4_0") {
    *format = Format::kQ4_0;
  } else if (name == "q4_1") {
    *format = Format::kQ4_1;
  } else if (name == "q8_0") {
    *format = Format::kQ8_0;
  } else if (name == "f16") {
    *format = Format::kF16;
  } else {
    return false;
  }
  return true;
}

void decode_panel(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out) {
  with_format(w.format, [&](auto f) { panel_forward<decltype(f)::value>(w, panel, k0, kc, out); });
}

void decode_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out) {
  with_format(w.format, [&](auto f) { panel_transposed<decltype(f)::value>(w, n0, nc, k0, out); });
}

void decode_row(const PackedWeight& w, int64_t row, float* out) {
  with_format(w.format, [&](auto f) { row_values<decltype(f)::value>(w, row, out); });
}

}  // namespace mft
