#pragma once

// Formats of packed weights (docs/reference/bundle_format.md).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/codebooks.h"

namespace mft {

enum class Code { kQ4_0, kQ4_1, kQ8_0, kQ8_1, kNF4, kFP4, kIQ4NL, kF16 };

constexpr int kPanelRows = 16;

// What value a code stands for.
enum class Levels {
  kSigned,     // scale * whole number: of 4 bits code - 8, of 8 bits the signed byte
  kAffine,     // scale * code + minimum
  kIntegers,   // scale * codebook[code], whole numbers of 8 bits
  kFractions,  // scale * codebook[code], at most 1, with the scale in float32 instead of float16
  kFloat16,    // the value itself
};

// All there is to know of a code. Kernels and quantization follow from this table. mobile_ft/model/formats.py has the
// same.
struct CodeTraits {
  Code code;
  std::string_view name;
  int bits;
  Levels levels;
  const float* codebook = nullptr;

  constexpr bool has_codebook() const { return levels == Levels::kIntegers || levels == Levels::kFractions; }
  // Of a scale, and of a minimum.
  constexpr int scale_bytes() const { return levels == Levels::kFractions ? 4 : 2; }
  // Scales, and minima, of a block's 16 rows.
  constexpr int header_bytes() const {
    return levels == Levels::kFloat16 ? 0 : kPanelRows * scale_bytes() * (levels == Levels::kAffine ? 2 : 1);
  }
  // Codes of one column of a block.
  constexpr int column_bytes() const { return kPanelRows * bits / 8; }
};
constexpr CodeTraits kCodes[] = {
    {Code::kQ4_0, "q4_0", 4, Levels::kSigned},
    {Code::kQ4_1, "q4_1", 4, Levels::kAffine},
    {Code::kQ8_0, "q8_0", 8, Levels::kSigned},
    {Code::kQ8_1, "q8_1", 8, Levels::kAffine},
    {Code::kNF4, "nf4", 4, Levels::kFractions, kNF4},
    {Code::kFP4, "fp4", 4, Levels::kFractions, kFP4},
    {Code::kIQ4NL, "iq4_nl", 4, Levels::kIntegers, kIQ4NL},
    {Code::kF16, "f16", 16, Levels::kFloat16},
};

constexpr CodeTraits traits_of(Code code) {
  int i = 0;
  while (kCodes[i].code != code) ++i;
  return kCodes[i];
}

// How a weight is coded: `group` columns share a scale.
struct Format {
  Code code;
  int64_t group;

  // Bytes of one block: 16 rows by one group of columns.
  constexpr size_t block_bytes() const {
    const CodeTraits traits = traits_of(code);
    return static_cast<size_t>(traits.header_bytes() + group * traits.column_bytes());
  }
};

// Understands "q4_0", "q4_1", "q8_0", "q8_1", "nf4", "fp4", "iq4_nl", each with "_g16", "_g64" or "_g128" behind it
// where the group is not 32, and "f16"; false for anything else.
bool parse_format(std::string_view name, Format* format);

// Every name that parse_format understands.
std::vector<std::string> format_names();

// W [rows, cols]: rows are output features (N), cols input features (K, a multiple of the group).
struct PackedWeight {
  const uint8_t* data;
  Format format;
  int64_t rows;
  int64_t cols;
  bool read_once = false;  // a file mapping whose pages a kernel drops behind it (platform/sweep.h)
};

}  // namespace mft
