#include "runtime/kernels/attention/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mft::MFT_ISA {
namespace {

constexpr float kLargestHalf = 65504.f;
constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow

void store_halves(const float* x, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; i += kVec) {
    const int64_t lanes = std::min<int64_t>(kVec, n - i);
    uint16_t halves[kVec];
    store_half(halves, clamp(load_part(x + i, lanes), -kLargestHalf, kLargestHalf));
    std::memcpy(out + i * 2, halves, static_cast<size_t>(lanes) * 2);
  }
}

// One block. Returns the scale.
float store_codes(const float* x, int64_t n, uint8_t* out) {
  float largest = 0.f;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float inverse = finite && largest > kSmallest ? 127.f / largest : 0.f;
  for (int64_t i = 0; i < n; i += kVec) {
    const int64_t lanes = std::min<int64_t>(kVec, n - i);
    const VecI codes = finite ? round_to_int(load_part(x + i, lanes) * inverse) : VecI{};
    for (int64_t lane = 0; lane < lanes; ++lane) out[i + lane] = static_cast<uint8_t>(codes[lane]);
  }
  return finite ? largest / 127.f : std::numeric_limits<float>::quiet_NaN();
}

void store_int8(const float* x, int64_t kv_heads, int64_t dim, uint8_t* row) {
  uint8_t* scales = row + kv_heads * dim;
  for (int64_t head = 0; head < kv_heads; ++head) {
    for (int64_t i = 0; i < dim; i += kKvBlock, scales += sizeof(float)) {
      const int64_t at = head * dim + i;
      const float scale = store_codes(x + at, std::min(kKvBlock, dim - i), row + at);
      std::memcpy(scales, &scale, sizeof(scale));
    }
  }
}

template <KvFormat kFormat>
void expand(const KvHead& head, int64_t first, int64_t tokens, int64_t dim, float* out) {
  for (int64_t j = 0; j < tokens; ++j, out += dim) {
    for (int64_t i = 0; i < dim; i += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, dim - i);
      store_part(out + i, head.load<kFormat>(first + j, i, lanes), lanes);
    }
  }
}

}  // namespace

void kv_store(KvFormat format, const float* x, int64_t t, int64_t kv_heads, int64_t dim, uint8_t* rows) {
  const int64_t width = kv_heads * dim, row_bytes = kv_row_bytes(format, kv_heads, dim);
  for (int64_t i = 0; i < t; ++i, x += width, rows += row_bytes) {
    switch (format) {
      case KvFormat::kFloat32:
        std::memcpy(rows, x, static_cast<size_t>(row_bytes));
        break;
      case KvFormat::kFloat16:
        store_halves(x, width, rows);
        break;
      case KvFormat::kInt8:
        store_int8(x, kv_heads, dim, rows);
        break;
    }
  }
}

void kv_expand(KvFormat format, const KvHead& head, int64_t first, int64_t tokens, int64_t dim, float* out) {
  switch (format) {
    case KvFormat::kFloat32:
      return expand<KvFormat::kFloat32>(head, first, tokens, dim, out);
    case KvFormat::kFloat16:
      return expand<KvFormat::kFloat16>(head, first, tokens, dim, out);
    case KvFormat::kInt8:
      return expand<KvFormat::kInt8>(head, first, tokens, dim, out);
  }
}

}  // namespace mft::MFT_ISA
