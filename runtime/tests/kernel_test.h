#pragma once

// What the kernel tests share: random data, a packed weight with its dense float64 twin, scratch
// with a canary behind it, and the error measure.

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/kernels/quant.h"
#include "runtime/kernels/scratch.h"
#include "runtime/kernels/threads.h"
#include "runtime/tests/check.h"

namespace mft_test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr double kTolerance = 1e-5;
constexpr mft::Format kFormats[] = {mft::Format::kQ4_0, mft::Format::kQ4_1, mft::Format::kQ8_0, mft::Format::kF16};

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

// Positive normal f16 of exponent 2^-4 .. 2^-1, and its value.
inline uint16_t random_half(double* value) {
  const uint16_t mantissa = rng()() % 1024;
  const int exponent = 11 + static_cast<int>(rng()() % 4);
  *value = std::ldexp(1.0 + mantissa / 1024.0, exponent - 15);
  return static_cast<uint16_t>(exponent << 10 | mantissa);
}

// A random packed weight, written from the description in docs/bundle_format.md.
struct TestWeight {
  std::vector<uint8_t> bytes;
  Doubles dense;  // [rows, cols]
  mft::PackedWeight packed;

  TestWeight(mft::Format format, int64_t rows, int64_t cols) : dense(static_cast<size_t>(rows * cols)) {
    const size_t block = mft::block_bytes(format);
    const int64_t panels = (rows + 15) / 16;
    bytes.assign(static_cast<size_t>(panels * (cols / 32)) * block, 0);
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t group = 0; group < cols / 32; ++group) {
        uint8_t* p = bytes.data() + static_cast<size_t>(panel * (cols / 32) + group) * block;
        for (int64_t j = 0; j < 16 && panel * 16 + j < rows; ++j) {
          fill(format, p, j, dense.data() + (panel * 16 + j) * cols + group * 32);
        }
      }
    }
    packed = {bytes.data(), format, rows, cols};
  }

 private:
  static void fill(mft::Format format, uint8_t* p, int64_t j, double* out) {
    double scale = 0;
    double low = 0;
    if (format != mft::Format::kF16) put_half(p + 2 * j, &scale);
    if (format == mft::Format::kQ4_1) put_half(p + 32 + 2 * j, &low);
    for (int64_t k = 0; k < 32; ++k) {
      const int code = static_cast<int>(rng()() % 256);
      switch (format) {
        case mft::Format::kF16:
          put_half(p + 2 * (k * 16 + j), out + k);
          if (code % 2 == 0) {
            p[2 * (k * 16 + j) + 1] |= 0x80;
            out[k] = -out[k];
          }
          break;
        case mft::Format::kQ8_0:
          p[32 + k * 16 + j] = static_cast<uint8_t>(code);
          out[k] = scale * static_cast<int8_t>(code);
          break;
        case mft::Format::kQ4_0:
          p[32 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * ((code & 15) - 8);
          break;
        case mft::Format::kQ4_1:
          p[64 + k * 8 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
          out[k] = scale * (code & 15) + low;
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
