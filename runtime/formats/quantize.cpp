#include "runtime/formats/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/formats/codebooks.h"
#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft {
using namespace MFT_ISA;
namespace {

constexpr int64_t kMostGroup = 128;
constexpr float kLargestHalf = 65504.f;
// Of the scale by which the largest value just fits: smaller ones clip it and round the others less.
constexpr int kFactors = 12;
constexpr float factor(int i, float least) { return least + (1.05f - least) * static_cast<float>(i) / (kFactors - 1); }
// Of a range of `steps` codes, what is clipped at either end.
constexpr int kEnds = 9;
constexpr float end(int i, float steps) { return (0.5f * static_cast<float>(i) - 0.4f) / steps; }
constexpr int kRounds = 3;  // of codes, and what fits them best

/// Within f16's range.
uint16_t half_of(float x) {
  uint16_t halves[kVec];
  store_half(halves, splat(x));
  return halves[0];
}

float rounded_to_half(float x) {
  const uint16_t half = half_of(x);
  return half_to_float(reinterpret_cast<const uint8_t*>(&half));
}

float inverse_of(float scale) { return std::fabs(scale) < std::numeric_limits<float>::min() ? 0.f : 1.f / scale; }

/// The values of a group, and what an error in each counts.
struct Group {
  const float* x;
  const float* weight;
  int64_t size;

  template <typename F>
  void each(const F& f) const {
    for (int64_t i = 0; i < size; i += kVec) f(load(x + i), load(weight + i));
  }
};

/// The errors of large values count more, as in llama.cpp with an importance matrix. Measured, it costs less perplexity
/// wherever a scale alone is searched, and more where a minimum is too. `weight` takes the weights.
Group with_large_weighed(const Group& group, float* weight) {
  float square = 0;
  for (int64_t i = 0; i < group.size; ++i) square += group.x[i] * group.x[i];
  const float mean = square / static_cast<float>(group.size);
  const float inverse = mean > std::numeric_limits<float>::min() ? 1.f / mean : 0.f;
  for (int64_t i = 0; i < group.size; ++i) {
    weight[i] = group.weight[i] * std::sqrt(1.f + group.x[i] * group.x[i] * inverse);
  }
  return {group.x, weight, group.size};
}

/// Whole numbers from `low` to `high`.
struct Uniform {
  float low, high;

  Vec value(Vec x) const { return to_float(round_to_int(vmin(vmax(x, splat(low)), splat(high)))); }
  VecI code(Vec x) const { return round_to_int(vmin(vmax(x, splat(low)), splat(high))) + (low == -8 ? 8 : 0); }
  float furthest() const { return low == -8 ? low : high; }
  float least_factor() const { return low == -8 ? 0.6f : 0.95f; }
};

/// Sixteen values, and their codes in the order of the values.
struct Codebook {
  float ascending[16];
  float middles[15];
  uint8_t codes[16];

  explicit Codebook(const float values[16]) {
    for (uint8_t c = 0; c < 16; ++c) codes[c] = c;
    std::stable_sort(codes, codes + 16, [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
    for (int i = 0; i < 16; ++i) ascending[i] = values[codes[i]];
    for (int i = 0; i < 15; ++i) middles[i] = (ascending[i] + ascending[i + 1]) / 2;
  }

  VecI index(Vec x) const {
    VecI found{};
    for (const float middle : middles) found -= x > splat(middle);  // true is -1
    return found;
  }
  Vec value(Vec x) const { return lookup16(ascending, index(x)); }
  VecI code(Vec x) const {
    VecI found = index(x);
    for (int i = 0; i < kVec; ++i) found[i] = codes[found[i]];
    return found;
  }
  float furthest() const { return -ascending[0] > ascending[15] ? ascending[0] : ascending[15]; }
  float least_factor() const { return 0.6f; }
};

const Codebook& codebook(Code code) {
  static const Codebook nf4(kNF4), fp4(kFP4), iq4_nl(kIQ4NL);
  return code == Code::kNF4 ? nf4 : code == Code::kFP4 ? fp4 : iq4_nl;
}

/// A scale, and the squared error of the codes that another one, or itself, gave.
struct Scale {
  float value, error;
};

/// The error is a parabola over the scale, so one pass gives its minimum. `half`: the scale is kept as f16.
template <typename Levels>
Scale fit(const Group& group, const Levels& levels, bool half, float scale) {
  const Vec inverse = splat(inverse_of(scale)), by = splat(scale);
  Vec errors{}, products{}, squares{};
  group.each([&](Vec x, Vec weight) {
    const Vec level = levels.value(x * inverse), error = x - by * level, weighted = weight * level;
    errors += weight * error * error;
    products += weighted * x;
    squares += weighted * level;
  });
  const float error = sum(errors), square = sum(squares), best = square > 0 ? sum(products) / square : 0.f;
  const float kept = half ? rounded_to_half(best) : best;
  const float fitted = error + square * ((kept - best) * (kept - best) - (scale - best) * (scale - best));
  return fitted < error ? Scale{kept, fitted} : Scale{scale, error};
}

/// value = scale * level: writes the codes and gives the scale.
template <typename Levels>
float scaled(const Group& given, const Levels& levels, bool half, uint8_t* codes) {
  float weight[kMostGroup];
  const Group group = with_large_weighed(given, weight);
  float extreme = 0;
  for (int64_t i = 0; i < group.size; ++i) {
    if (std::fabs(group.x[i]) > std::fabs(extreme)) extreme = group.x[i];
  }
  const float fitting = extreme / levels.furthest();  // the level furthest from 0 takes it, whatever its sign
  Scale best{0, std::numeric_limits<float>::infinity()};
  const auto attempt = [&](float scale) {
    const Scale found = fit(group, levels, half, half ? rounded_to_half(scale) : scale);
    if (!(found.error < best.error)) return false;
    best = found;
    return true;
  };
  for (int i = 0; i < kFactors; ++i) attempt(fitting * factor(i, levels.least_factor()));
  for (int round = 0; round < kRounds && attempt(best.value); ++round) continue;
  const Vec inverse = splat(inverse_of(best.value));
  for (int64_t i = 0; i < group.size; i += kVec) {
    const VecI found = levels.code(load(group.x + i) * inverse);
    for (int64_t j = 0; j < kVec; ++j) codes[i + j] = static_cast<uint8_t>(found[j]);
  }
  return best.value;
}

/// value = scale * code + minimum, codes from 0 to `most`.
struct Affine {
  float scale, minimum, error;

  Vec code(Vec x, float most) const {
    return to_float(round_to_int(vmin(vmax((x - minimum) * inverse_of(scale), Vec{}), splat(most))));
  }
};

/// The same for a scale and a minimum, kept as f16.
Affine fit(const Group& group, float mean, float total, float most, const Affine& tried) {
  Vec errors{}, codes{}, squares{}, products{};
  group.each([&](Vec x, Vec weight) {
    const Vec code = tried.code(x, most), error = x - tried.scale * code - tried.minimum, weighted = weight * code;
    errors += weight * error * error;
    codes += weighted;
    squares += weighted * code;
    products += weighted * (x - mean);
  });
  const float code = sum(codes), square = sum(squares), average = code / total, spread = square - average * code;
  const float scale = spread > 0 ? sum(products) / spread : 0.f, minimum = mean - scale * average;
  const auto beside = [&](const Affine& other) {
    const float s = other.scale - scale, m = other.minimum - minimum;
    return s * s * square + 2 * s * m * code + m * m * total;
  };
  Affine kept{rounded_to_half(scale), 0, 0};
  kept.minimum = rounded_to_half(mean - kept.scale * average);
  const float error = sum(errors);
  kept.error = error + beside(kept) - beside(tried);
  return kept.error < error ? kept : Affine{tried.scale, tried.minimum, error};
}

Affine affine(const Group& group, float most, uint8_t* codes) {
  float low = group.x[0], high = group.x[0];
  Vec weights{}, weighted{};
  for (int64_t i = 0; i < group.size; ++i) {
    low = std::min(low, group.x[i]);
    high = std::max(high, group.x[i]);
  }
  group.each([&](Vec x, Vec weight) {
    weights += weight;
    weighted += weight * x;
  });
  const float total = sum(weights), mean = sum(weighted) / total, width = high - low;
  Affine best{0, 0, std::numeric_limits<float>::infinity()};
  const auto attempt = [&](const Affine& tried) {
    const Affine found = fit(group, mean, total, most, tried);
    if (!(found.error < best.error)) return false;
    best = found;
    return true;
  };
  for (int i = 0; i < kEnds * kEnds; ++i) {
    const float from = low + width * end(i % kEnds, most), to = high - width * end(i / kEnds, most);
    attempt({rounded_to_half((to - from) / most), rounded_to_half(from), 0});
  }
  for (int round = 0; round < kRounds && attempt(best); ++round) continue;
  float values[kVec];
  for (int64_t i = 0; i < group.size; i += kVec) {
    store(values, best.code(load(group.x + i), most));
    for (int64_t j = 0; j < kVec; ++j) codes[i + j] = static_cast<uint8_t>(values[j]);
  }
  return best;
}

/// Writes the scale and minimum of row j into a block's header.
void put_half(uint8_t* header, int64_t j, float value) {
  const uint16_t half = half_of(value);
  std::memcpy(header + j * static_cast<int64_t>(sizeof(half)), &half, sizeof(half));
}

/// One block: 16 rows, of which `rows` are there, by one group of columns.
void pack_block(const float* w, int64_t cols, int64_t rows, const float* importance, Format format, uint8_t* block) {
  uint8_t codes[kPanelRows][kMostGroup] = {};
  std::memset(block, 0, format.block_bytes());
  for (int64_t j = 0; j < rows; ++j) {
    const Group group{w + j * cols, importance, format.group};
    switch (format.code) {
      case Code::kQ4_0:
        put_half(block, j, scaled(group, Uniform{-8, 7}, true, codes[j]));
        break;
      case Code::kQ8_0:
        put_half(block, j, scaled(group, Uniform{-127, 127}, true, codes[j]));
        break;
      case Code::kIQ4NL:
        put_half(block, j, scaled(group, codebook(format.code), true, codes[j]));
        break;
      case Code::kNF4:
      case Code::kFP4: {
        const float scale = scaled(group, codebook(format.code), false, codes[j]);
        std::memcpy(block + j * sizeof(float), &scale, sizeof(float));
        break;
      }
      case Code::kQ4_1:
      case Code::kQ8_1: {
        const Affine found = affine(group, format.code == Code::kQ4_1 ? 15 : 255, codes[j]);
        put_half(block, j, found.scale);
        put_half(block + kPanelRows * sizeof(uint16_t), j, found.minimum);
        break;
      }
      case Code::kF16:
        for (int64_t k = 0; k < format.group; ++k) put_half(block, k * kPanelRows + j, group.x[k]);
        break;
    }
  }
  if (format.code == Code::kF16) return;
  const bool bytes = format.code == Code::kQ8_0 || format.code == Code::kQ8_1;
  const int64_t code_bytes = bytes ? kPanelRows : kPanelRows / 2;
  uint8_t* out = block + format.block_bytes() - static_cast<size_t>(format.group * code_bytes);
  for (int64_t k = 0; k < format.group; ++k) {
    for (int64_t j = 0; j < code_bytes; ++j) {
      const int high = code_bytes < kPanelRows ? codes[j + 8][k] << 4 : 0;
      *out++ = static_cast<uint8_t>(codes[j][k] | high);
    }
  }
}

/// Whether the type of scales, or of values, holds what it may have to; and the search's squares what they add up.
bool fits(const float* w, int64_t size, Format format) {
  const Code code = format.code;
  float most = kLargestHalf;
  if (code == Code::kQ4_1 || code == Code::kQ8_1) most = kLargestHalf / 2;  // minima may lie below all values
  if (code == Code::kQ4_0 || code == Code::kQ8_0) most = 7 * kLargestHalf;
  if (code == Code::kIQ4NL) most = 113 * kLargestHalf;
  if (code == Code::kNF4 || code == Code::kFP4) most = 1e15f;
  return std::all_of(w, w + size, [&](float x) { return std::fabs(x) <= most; });
}

}  // namespace

size_t packed_bytes(Format format, int64_t rows, int64_t cols) {
  return static_cast<size_t>(ceil_div(rows, kPanelRows) * (cols / format.group)) * format.block_bytes();
}

bool quantize(const float* w, int64_t rows, int64_t cols, const float* importance, Format format, uint8_t* packed) {
  const std::vector<float> same(importance == nullptr ? static_cast<size_t>(cols) : 0, 1.f);
  const float* weights = importance == nullptr ? same.data() : importance;
  const int64_t groups = cols / format.group;
  const int64_t block = static_cast<int64_t>(format.block_bytes());
  std::atomic<bool> all_fit{true};
  parallel_for(ceil_div(rows, kPanelRows), [&](int64_t panel) {
    const int64_t first = panel * kPanelRows, count = std::min<int64_t>(kPanelRows, rows - first);
    if (!fits(w + first * cols, count * cols, format)) all_fit = false;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t column = g * format.group;
      pack_block(w + first * cols + column, cols, count, weights + column, format,
                 packed + (panel * groups + g) * block);
    }
  });
  return all_fit;
}

}  // namespace mft
