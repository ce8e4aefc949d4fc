#pragma once

// The keys and values of all tokens so far, which attention reads while a model answers.

#include <cstdint>

#include "runtime/platform/vec.h"

namespace mft {

/// By their bits.
enum class KvFormat { kFloat32 = 32, kFloat16 = 16, kInt8 = 8 };

/// Bytes of one number.
constexpr int64_t kv_bytes(KvFormat format) {
  return format == KvFormat::kFloat32 ? 4 : format == KvFormat::kFloat16 ? 2 : 1;
}

/// Numbers of a head that share a scale in int8.
constexpr int64_t kKvBlock = 32;
constexpr int64_t kv_blocks(int64_t dim) { return (dim + kKvBlock - 1) / kKvBlock; }

/// Bytes of the keys, or of the values, of one token. int8 has float32 scales, of the blocks of each head, behind the
/// codes.
constexpr int64_t kv_row_bytes(KvFormat format, int64_t kv_heads, int64_t dim) {
  switch (format) {
    case KvFormat::kFloat32:
      return kv_heads * dim * int64_t{sizeof(float)};
    case KvFormat::kFloat16:
      return kv_heads * dim * int64_t{sizeof(uint16_t)};
    case KvFormat::kInt8:
      return kv_heads * (dim + kv_blocks(dim) * int64_t{sizeof(float)});
  }
  return 0;
}

/// Rows of kv_row_bytes, one for each token.
struct KvCache {
  const uint8_t* keys;
  const uint8_t* values;
  KvFormat format;
};

namespace MFT_ISA {

// Stores t tokens' keys, or values, [t, kv_heads * dim] as rows. float16 clamps to its range; in int8, a block with NaN
// or an infinity becomes NaN.
void kv_store(KvFormat format, const float* x, int64_t t, int64_t kv_heads, int64_t dim, uint8_t* rows);

// One head's keys, or values, of consecutive tokens.
struct KvHead {
  const uint8_t* codes;   // of the first token
  const uint8_t* scales;  // likewise, of int8
  int64_t row_bytes;

  KvHead(KvFormat format, const uint8_t* rows, int64_t kv_heads, int64_t dim, int64_t head)
      : codes(rows + head * dim * kv_bytes(format)),
        scales(rows + kv_heads * dim + head * kv_blocks(dim) * int64_t{sizeof(float)}),
        row_bytes(kv_row_bytes(format, kv_heads, dim)) {}

  // Numbers [i, i + lanes) of a token, other lanes zero; i is a multiple of kVec.
  template <KvFormat kFormat>
  [[gnu::always_inline]] Vec load(int64_t token, int64_t i, int64_t lanes) const {
    constexpr int64_t kBytes = kv_bytes(kFormat);
    const uint8_t* at = codes + token * row_bytes + i * kBytes;
    uint8_t part[kVec * kBytes];
    if (lanes < kVec) {
      std::memset(part, 0, sizeof(part));
      std::memcpy(part, at, static_cast<size_t>(lanes * kBytes));
      at = part;
    }
    if constexpr (kFormat == KvFormat::kFloat32) {
      return load_bytes(at);
    } else if constexpr (kFormat == KvFormat::kFloat16) {
      return load_half(at);
    } else {
      return load_int8(at) * float_at(scales + token * row_bytes + i / kKvBlock * int64_t{sizeof(float)});
    }
  }
};

// out [tokens, dim] of tokens [first, first + tokens).
void kv_expand(KvFormat format, const KvHead& head, int64_t first, int64_t tokens, int64_t dim, float* out);

}  // namespace MFT_ISA
}  // namespace mft
