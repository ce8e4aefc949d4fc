#include "runtime/formats/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/formats/affine_search.h"
#include "runtime/formats/group.h"
#include "runtime/formats/scale_search.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

constexpr float kLargestHalf = 65504.f;

/// Writes the scale and minimum of row j into a block's header.
void put_half(uint8_t* header, int64_t j, float value) {
  const uint16_t half = half_of(value);
  std::memcpy(header + j * static_cast<int64_t>(sizeof(half)), &half, sizeof(half));
}

/// Writes the codes of a block behind its header, column by column: 16 bytes for the rows, or 8 with the codes of rows
/// 8 to 15 in the high halves.
void put_codes(const uint8_t codes[kPanelRows][kMostGroup], Format format, uint8_t* block) {
  const int64_t code_bytes = traits_of(format.code).column_bytes();
  uint8_t* out = block + format.block_bytes() - static_cast<size_t>(format.group * code_bytes);
  for (int64_t k = 0; k < format.group; ++k) {
    for (int64_t j = 0; j < code_bytes; ++j) {
      const int high = code_bytes < kPanelRows ? codes[j + 8][k] << 4 : 0;
      *out++ = static_cast<uint8_t>(codes[j][k] | high);
    }
  }
}

/// One block (docs/reference/bundle_format.md): a header with scales and minima, and codes. 16 rows, of which `rows`
/// are there, by one group of columns.
void pack_block(const float* w, int64_t cols, int64_t rows, const float* importance, Format format, uint8_t* block) {
  const CodeTraits traits = traits_of(format.code);
  uint8_t codes[kPanelRows][kMostGroup] = {};
  std::memset(block, 0, format.block_bytes());
  for (int64_t j = 0; j < rows; ++j) {
    const Group group{w + j * cols, importance, format.group};
    switch (traits.levels) {
      case Levels::kSigned:
      case Levels::kIntegers:
        put_half(block, j, search_scale(group, format.code, codes[j]));
        break;
      case Levels::kFractions: {
        const float scale = search_scale(group, format.code, codes[j]);
        std::memcpy(block + j * sizeof(float), &scale, sizeof(float));
        break;
      }
      case Levels::kAffine: {
        const Affine found = search_affine(group, traits.bits == 4 ? 15 : 255, codes[j]);
        put_half(block, j, found.scale);
        put_half(block + kPanelRows * sizeof(uint16_t), j, found.minimum);
        break;
      }
      case Levels::kFloat16:
        for (int64_t k = 0; k < format.group; ++k) put_half(block, k * kPanelRows + j, group.x[k]);
        break;
    }
  }
  if (traits.levels != Levels::kFloat16) put_codes(codes, format, block);
}

/// The largest magnitude of a value whose scale float16 can hold, or float32 for kFractions, with room for the scales
/// that the search tries. In float32 its sums of squares must not overflow.
float largest_value(const CodeTraits& traits) {
  switch (traits.levels) {
    case Levels::kSigned:
    case Levels::kIntegers:
      return 0.875f * (traits.bits == 4 && !traits.has_codebook() ? 8.f : 127.f) * kLargestHalf;
    case Levels::kAffine:
      return kLargestHalf / 2;  // minima may lie below all values
    case Levels::kFractions:
      return 1e15f;
    case Levels::kFloat16:
      return kLargestHalf;
  }
  return 0;
}

bool fits(const float* w, int64_t size, float largest) {
  return std::all_of(w, w + size, [&](float x) { return std::fabs(x) <= largest; });
}

}  // namespace

size_t packed_bytes(Format format, int64_t rows, int64_t cols) {
  return static_cast<size_t>(ceil_div(rows, kPanelRows) * (cols / format.group)) * format.block_bytes();
}

bool quantize(const float* w, int64_t rows, int64_t cols, const float* importance, Format format, uint8_t* packed) {
  const std::vector<float> same(importance == nullptr ? static_cast<size_t>(cols) : 0, 1.f);
  const float* weights = importance == nullptr ? same.data() : importance;
  const int64_t groups = cols / format.group;
  const float largest = largest_value(traits_of(format.code));
  const int64_t block = static_cast<int64_t>(format.block_bytes());
  std::atomic<bool> all_fit{true};
  parallel_for(ceil_div(rows, kPanelRows), [&](int64_t panel) {
    const int64_t first = panel * kPanelRows, count = std::min<int64_t>(kPanelRows, rows - first);
    if (!fits(w + first * cols, count * cols, largest)) all_fit = false;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t column = g * format.group;
      pack_block(w + first * cols + column, cols, count, weights + column, format,
                 packed + (panel * groups + g) * block);
    }
  });
  return all_fit;
}

}  // namespace mft
