#pragma once

// Packed weights (docs/bundle_format.md) and their decoding, one tile at a time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

enum class Code { kQ4_0, kQ4_1, kQ8_0, kQ8_1, kNF4, kFP4, kIQ4NL, kF16 };

constexpr int kPanelRows = 16;

// How a weight is coded: `group` columns share a scale.
struct Format {
  Code code;
  int64_t group;

  // Bytes of one block: 16 rows by one group of columns.
  size_t block_bytes() const;
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
};

// out[k][j] = W[panel * 16 + j][k0 + k], k in [0, kc), j in [0, 16): what y = x W^T multiplies by.
// Rows past the last one read as zero.
void decode_panel(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out);

// out[n][j] = W[n0 + n][k0 + j], n in [0, nc), j in [0, 16): what dx = dy W multiplies by.
// n0 and k0 are multiples of 16; out holds nc rounded up to 16 rows.
void decode_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out);

// out[k] = W[row][k], k in [0, K).
void decode_row(const PackedWeight& w, int64_t row, float* out);

}  // namespace mft
