#include "runtime/kernels/quant.h"

#include <algorithm>

#include "runtime/kernels/codebooks.h"
#include "runtime/kernels/vec.h"

// A code that a switch here forgot would be decoded as another.
#pragma GCC diagnostic error "-Wswitch"

namespace mft {
namespace {

constexpr int kPanelVecs = kPanelRows / kVec;

// All there is to know of a code but its arithmetic; mobile_ft/formats.py has the same table.
struct CodeTraits {
  Code code;
  std::string_view name;
  int header_bytes;  // scales, and minima, of a block's 16 rows
  int column_bytes;  // codes of one column of it
  bool any_group;    // whether the group may be other than 32
};
constexpr CodeTraits kCodes[] = {
    {Code::kQ4_0, "q4_0", 32, 8, true},    {Code::kQ4_1, "q4_1", 64, 8, true}, {Code::kQ8_0, "q8_0", 32, 16, true},
    {Code::kQ8_1, "q8_1", 64, 16, true},   {Code::kNF4, "nf4", 64, 8, true},   {Code::kFP4, "fp4", 64, 8, true},
    {Code::kIQ4NL, "iq4_nl", 32, 8, true}, {Code::kF16, "f16", 0, 32, false},
};

constexpr int64_t kPlainGroup = 32;
struct Group {
  std::string_view suffix;
  int64_t columns;
};
constexpr Group kGroups[] = {{"", kPlainGroup}, {"_g16", 16}, {"_g64", 64}, {"_g128", 128}};

constexpr bool has_group(const CodeTraits& traits, const Group& group) {
  return traits.any_group || group.columns == kPlainGroup;
}

constexpr CodeTraits traits_of(Code code) {
  size_t i = 0;
  while (kCodes[i].code != code) ++i;
  return kCodes[i];
}

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
      load_i8(codes + k * kPanelRows + 8, q + kBytesVecs);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v];
    } else if constexpr (F == Code::kQ8_1) {
      VecI q[kPanelVecs];
      load_u8(codes + k * kPanelRows, q);
      load_u8(codes + k * kPanelRows + 8, q + kBytesVecs);
      for (int v = 0; v < kPanelVecs; ++v) out[v] = to_float(q[v]) * scale[v] + min[v];
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
          static_assert(F == Code::kQ4_0);
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
  const CodeTraits traits = traits_of(code);
  return static_cast<size_t>(traits.header_bytes + group * traits.column_bytes);
}

bool parse_format(std::string_view name, Format* format) {
  for (const CodeTraits& traits : kCodes) {
    if (name.substr(0, traits.name.size()) != traits.name) continue;
    for (const Group& group : kGroups) {
      if (!has_group(traits, group) || name.substr(traits.name.size()) != group.suffix) continue;
      *format = {traits.code, group.columns};
      return true;
    }
  }
  return false;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const CodeTraits& traits : kCodes) {
    for (const Group& group : kGroups) {
      if (has_group(traits, group)) names.push_back(std::string(traits.name).append(group.suffix));
    }
  }
  return names;
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
