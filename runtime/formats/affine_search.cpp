#include "runtime/formats/affine_search.h"

#include <algorithm>

namespace mft {
namespace {

// The share of a range of `steps` codes that is clipped at either end.
constexpr int kEnds = 9;
constexpr float end(int i, float steps) { return (0.5f * static_cast<float>(i) - 0.4f) / steps; }

/// A scale and minimum that were tried, and the squared error of their codes.
struct Tried {
  float scale, minimum, error;

  Vec code(Vec x, float most) const {
    return to_float(round_to_int(vmin(vmax((x - minimum) * inverse_of(scale), Vec{}), splat(most))));
  }
};

/// The best scale and minimum for the codes of `tried`, with their error. `mean` of the values and `total` of the
/// weights.
Tried fit(const Group& group, float mean, float total, float most, const Tried& tried) {
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
  const auto beside = [&](const Tried& other) {
    const float s = other.scale - scale, m = other.minimum - minimum;
    return s * s * square + 2 * s * m * code + m * m * total;
  };
  Tried kept{rounded_to_half(scale), 0, 0};
  kept.minimum = rounded_to_half(mean - kept.scale * average);
  const float error = sum(errors);
  kept.error = error + beside(kept) - beside(tried);
  return kept.error < error ? kept : Tried{tried.scale, tried.minimum, error};
}

}  // namespace

Affine search_affine(const Group& group, float most, uint8_t* codes) {
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
  Tried best{0, 0, std::numeric_limits<float>::infinity()};
  const auto attempt = [&](const Tried& tried) {
    const Tried found = fit(group, mean, total, most, tried);
    if (!(found.error < best.error)) return false;
    best = found;
    return true;
  };
  for (int i = 0; i < kEnds * kEnds; ++i) {
    const float from = low + width * end(i % kEnds, most), to = high - width * end(i / kEnds, most);
    attempt({rounded_to_half((to - from) / most), rounded_to_half(from), 0});
  }
  for (int round = 0; round < kSearchRounds && attempt(best); ++round) continue;
  float values[kVec];
  for (int64_t i = 0; i < group.size; i += kVec) {
    store(values, best.code(load(group.x + i), most));
    for (int64_t j = 0; j < kVec; ++j) codes[i + j] = static_cast<uint8_t>(values[j]);
  }
  return {best.scale, best.minimum};
}

}  // namespace mft
