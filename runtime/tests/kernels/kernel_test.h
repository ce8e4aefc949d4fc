#pragma once

// What the kernel tests share: random data, a packed weight with its dense float64 twin, scratch
// with a canary behind it, and the error measure.

#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "runtime/formats/format.h"
#include "runtime/platform/scratch.h"
#include "runtime/platform/threads.h"
#include "runtime/tests/check.h"

namespace mft_test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr double kTolerance = 1e-5;
/// Every code, in groups of 32.
inline constexpr auto kFormats = [] {
  std::array<const char*, std::size(mft::kCodes)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = mft::kCodes[i].name.data();
  return names;
}();

inline mft::Format format_named(const char* name) {
  mft::Format format{};
  CHECK(mft::parse_format(name, &format));
  return format;
}

inline std::mt19937& rng() {
  static std::mt19937 generator(1);
  return generator;
}

inline Floats random_floats(int64_t n, float scale = 1.f) {
  std::normal_distribution<float> normal(0.f, scale);
  Floats out(static_cast<size_t>(n));
  for (float& x : out) x = normal(rng());
  return out;
}

// ||a - b|| / ||b||, or ||a|| where b is zero.
template <typename A>
double error(const A& a, const Doubles& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += b[i] * b[i];
  }
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

// c [m, n] += alpha a b, with element (i, j) of a at a[i * ai + j * aj].
template <typename A, typename B>
void add_product(Doubles& c, int64_t m, int64_t n, int64_t k, double alpha, const A& a, int64_t ai, int64_t aj,
                 const B& b, int64_t bi, int64_t bj) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double x = alpha * a[i * ai + l * aj];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += x * b[l * bi + j * bj];
    }
  }
}

// Positive normal f16 of exponent 2^-4 .. 2^-1, and its value.
inline uint16_t random_half(double* value) {
  const uint16_t mantissa = rng()() % 1024;
  const int exponent = 11 + static_cast<int>(rng()() % 4);
  *value = std::ldexp(1.0 + mantissa / 1024.0, exponent - 15);
  return static_cast<uint16_t>(exponent << 10 | mantissa);
}

// A random packed weight, written from the description in docs/reference/bundle_format.md.
struct TestWeight {
  std::vector<uint8_t> bytes;
  Doubles dense;  // [rows, cols]
  mft::PackedWeight packed;

  TestWeight(const char* name, int64_t rows, int64_t cols) : dense(static_cast<size_t>(rows * cols)) {
    const mft::Format format = format_named(name);
    const size_t block = format.block_bytes();
    const int64_t group_size = format.group;
    const int64_t panels = (rows + 15) / 16;
    bytes.assign(static_cast<size_t>(panels * (cols / group_size)) * block, 0);
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t group = 0; group < cols / group_size; ++group) {
        uint8_t* p = bytes.data() + static_cast<size_t>(panel * (cols / group_size) + group) * block;
        for (int64_t j = 0; j < 16 && panel * 16 + j < rows; ++j) {
          fill(format, p, j, dense.data() + (panel * 16 + j) * cols + group * group_size);
        }
      }
    }
    packed = {bytes.data(), format, rows, cols};
  }

 private:
  // As in bitsandbytes' source; FP4 is sign, two bits of exponent, one of mantissa, in twelfths.
  static constexpr float kNF4[16] = {-1.0f,        -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
                                     -0.09105004f, 0.0f,        0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
                                     0.44070983f,  0.562617f,   0.72295684f,  1.0f};
  static constexpr float kFP4[16] = {0,         0.0625f / 12, 8.f / 12,  12.f / 12,     4.f / 12,  6.f / 12,
                                     2.f / 12,  3.f / 12,     0,         -0.0625f / 12, -8.f / 12, -12.f / 12,
                                     -4.f / 12, -6.f / 12,    -2.f / 12, -3.f / 12};
  // As in ggml's source.
  static constexpr float kIQ4NL[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

  static void fill(mft::Format format, uint8_t* p, int64_t j, double* out) {
    double scale = 0;
    double low = 0;
    const float* codebook = format.code == mft::Code::kNF4     ? kNF4
                            : format.code == mft::Code::kFP4   ? kFP4
                            : format.code == mft::Code::kIQ4NL ? kIQ4NL
                                                               : nullptr;
    if (codebook == kNF4 || codebook == kFP4) {
      const float value = random_floats(1)[0];
      std::memcpy(p + 4 * j, &value, sizeof(value));
      scale = value;
    } else if (format.code != mft::Code::kF16) {
      put_half(p + 2 * j, &scale);
    }
    if (format.code == mft::Code::kQ4_1 || format.code == mft::Code::kQ8_1) put_half(p + 32 + 2 * j, &low);
    for (int64_t k = 0; k < format.group; ++k) {
      const int code = static_cast<int>(rng()() % 256);
      switch (format.code) {
        case mft::Code::kF16:
          put_half(p + 2 * (k * 16 + j), out + k);
          if (code % 2 == 0) {
            p[2 * (k * 16 + j) + 1] |= 0x80;
            out[k] = -out[k];
          }
          break;
        case mft::Code::kQ8_0:
          p[32 + k * 16 + j] = static_cast<uint8_t>(code);
          out[k] = scale * static_cast<int8_t>(code);
          break;
        case mft::Code::kQ8_1:
          p[64 + k * 16 + j] = static_cast<uint8_t>(code);
          out[k] = scale * code + low;
          break;
        case mft::Code::kQ4_0:
          p[32 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * ((code & 15) - 8);
          break;
        case mft::Code::kQ4_1:
          p[64 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * (code & 15) + low;
          break;
        case mft::Code::kIQ4NL:
          p[32 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * codebook[code & 15];
          break;
        case mft::Code::kNF4:
        case mft::Code::kFP4:
          p[64 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * codebook[code & 15];
          break;
      }
    }
  }

  static void put_half(uint8_t* p, double* value) {
    const uint16_t half = random_half(value);
    std::memcpy(p, &half, sizeof(half));
  }
};

// Scratch of exactly the promised size, unaligned, full of NaN, with a canary on both sides.
class TestScratch {
 public:
  explicit TestScratch(size_t size) : size_(size), bytes_(size + 2 * kCanary, std::byte{0xff}) {}
  ~TestScratch() {
    for (size_t i = 0; i < kCanary; ++i) {
      CHECK(bytes_[i] == std::byte{0xff} && bytes_[kCanary + size_ + i] == std::byte{0xff});
    }
  }
  mft::Scratch get() { return {bytes_.data() + kCanary, size_}; }

 private:
  static constexpr size_t kCanary = 72;
  size_t size_;
  std::vector<std::byte> bytes_;
};

}  // namespace mft_test
