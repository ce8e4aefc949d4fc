#pragma once

// Formats of packed weights (docs/reference/bundle_format.md).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

enum class Code { kQ4_0, kQ4_1, kQ8_0, kQ8_1, kNF4, kFP4, kIQ4NL, kF16 };

constexpr int kPanelRows = 16;

// All there is to know of a code but its arithmetic; mobile_ft/model/formats.py has the same table.
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
    return static_cast<size_t>(traits.header_bytes + group * traits.column_bytes);
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
