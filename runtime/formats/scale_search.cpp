#include "runtime/formats/scale_search.h"

#include <algorithm>
#include <map>

namespace mft {
namespace {

// Tried scales, relative to the one by which the largest value just fits. A smaller scale clips that value and rounds
// the others less.
constexpr int kFactors = 12;
constexpr float factor(int i, float least) { return least + (1.05f - least) * static_cast<float>(i) / (kFactors - 1); }

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
  static const std::map<Code, Codebook> all = [] {
    std::map<Code, Codebook> books;
    for (const CodeTraits& traits : kCodes) {
      if (traits.has_codebook()) books.emplace(traits.code, Codebook(traits.codebook));
    }
    return books;
  }();
  return all.find(code)->second;
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
  for (int round = 0; round < kSearchRounds && attempt(best.value); ++round) continue;
  const Vec inverse = splat(inverse_of(best.value));
  for (int64_t i = 0; i < group.size; i += kVec) {
    const VecI found = levels.code(load(group.x + i) * inverse);
    for (int64_t j = 0; j < kVec; ++j) codes[i + j] = static_cast<uint8_t>(found[j]);
  }
  return best.value;
}

}  // namespace

float search_scale(const Group& group, Code code, uint8_t* codes) {
  const CodeTraits traits = traits_of(code);
  if (traits.has_codebook()) return scaled(group, codebook(code), traits.scale_bytes() == 2, codes);
  return scaled(group, traits.bits == 4 ? Uniform{-8, 7} : Uniform{-127, 127}, true, codes);
}

}  // namespace mft
