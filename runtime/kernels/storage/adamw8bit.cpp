#include "runtime/kernels/storage/adamw8bit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int kCodes = 256;
constexpr int kDecades = 7;  // of the map

typedef uint8_t VecCodes __attribute__((vector_size(kVec)));

class DynamicMap {
 public:
  explicit DynamicMap(bool is_signed) : signed_(is_signed) {
    float all[kCodes] = {0.f, 1.f};
    int count = 2;
    double below = 0;  // the largest value so far
    for (int d = 0; d < kDecades; ++d) {
      const int fractions = is_signed ? 1 << d : 2 << d;
      const double high = std::pow(10.0, d - kDecades + 1);
      const auto value = [&](int i) { return high * (0.1 + 0.9 * (i + 0.5) / fractions); };
      fractions_[d] = static_cast<float>(fractions);
      slopes_[d] = static_cast<float>(fractions / (0.9 * high));
      starts_[d] = static_cast<float>((below + value(0)) / 2);
      below = value(fractions - 1);
      for (int i = 0; i < fractions; ++i) {
        all[count++] = static_cast<float>(value(i));
        if (is_signed) all[count++] = static_cast<float>(-value(i));
      }
    }
    one_ = static_cast<float>((below + 1) / 2);
    std::sort(all, all + kCodes);
    std::copy_n(all, kCodes, values);
    zero_ = static_cast<float>(std::lower_bound(values, values + kCodes, 0.f) - values);
  }

  // Codes nearest to x in [-1, 1]: a decade's fractions are evenly spaced, and so are the middles between them.
  VecCodes encode(Vec x) const {
    const Vec magnitude = x < 0.f ? -x : x;
    Vec fractions = splat(fractions_[0]), slope = splat(slopes_[0]);
    for (int d = 1; d < kDecades; ++d) {
      fractions = magnitude > starts_[d] ? splat(fractions_[d]) : fractions;
      slope = magnitude > starts_[d] ? splat(slopes_[d]) : slope;
    }
    const Vec fraction = magnitude * slope - fractions * (1.f / 9);
    // Decades before this one have as many codes as it, but for one. NaN becomes 0.
    const Vec first = signed_ ? fractions : fractions - 1.f;
    Vec code = first + (fraction > 0.f ? vmin(fraction, fractions - 0.5f) : Vec{});
    code = magnitude > starts_[0] ? code : Vec{};
    code = magnitude > one_ ? splat(255.f - zero_) : code;
    VecI steps = __builtin_convertvector(code, VecI);
    // The negative side mirrors the positive one but for -1, which is missing.
    if (signed_) steps = x < 0.f ? 0 - (steps < 127 ? steps : VecI{} + 127) : steps;
    return __builtin_convertvector(steps + static_cast<int>(zero_), VecCodes);
  }

  float values[kCodes];

 private:
  bool signed_;
  float zero_;                 // its code
  float fractions_[kDecades];  // of each decade
  float slopes_[kDecades];     // fractions a unit
  float starts_[kDecades];     // the middle between a decade's least value and the next below
  float one_;                  // and that between 1 and the next below
};

const DynamicMap& map_of(bool is_signed) {
  static const DynamicMap first(true);
  static const DynamicMap second(false);
  return is_signed ? first : second;
}

// Restores values from codes and scale; a null scale of a fresh block is zero.
void decode(const DynamicMap& map, const uint8_t* codes, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = map.values[codes[i]] * scale;
}

void encode(const DynamicMap& map, const float* x, int64_t n, uint8_t* codes, float* scale) {
  float highest = 0;
  for (int64_t i = 0; i < n; ++i) highest = std::max(highest, std::fabs(x[i]));
  *scale = highest;
  const float inverse = highest > 0 ? 1.f / highest : 0.f;
  for (int64_t i = 0; i < n; i += kVec) {
    const int64_t some = std::min<int64_t>(kVec, n - i);
    const VecCodes nearest = map.encode(load_part(x + i, some) * inverse);
    std::memcpy(codes + i, &nearest, static_cast<size_t>(some));
  }
}

}  // namespace

const float* dynamic_map(bool is_signed) { return map_of(is_signed).values; }

void adamw8bit_step(float* p, const float* g, Moment8bit m, Moment8bit v, int64_t n, double lr, float grad_scale,
                    int64_t step, const AdamWConfig& config) {
  const float beta1 = static_cast<float>(config.beta1), beta2 = static_cast<float>(config.beta2);
  const float weight1 = static_cast<float>(1.0 - config.beta1), weight2 = static_cast<float>(1.0 - config.beta2);
  const float decay = static_cast<float>(1.0 - lr * config.weight_decay);
  const float root = static_cast<float>(std::sqrt(1.0 - std::pow(config.beta2, static_cast<double>(step))));
  const float rate = static_cast<float>(lr / (1.0 - std::pow(config.beta1, static_cast<double>(step))));
  const float eps = static_cast<float>(config.eps);
  parallel_ranges(ceil_div(n, kMomentBlock), 16, [&](int64_t begin, int64_t end) {
    float first[kMomentBlock];
    float second[kMomentBlock];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kMomentBlock;
      const int64_t count = std::min(kMomentBlock, n - at);
      decode(map_of(true), m.codes + at, m.scales[block], count, first);
      decode(map_of(false), v.codes + at, v.scales[block], count, second);
      for (int64_t i = 0; i < count; ++i) {
        const float grad = g != nullptr ? g[at + i] * grad_scale : 0.f;
        first[i] = beta1 * first[i] + weight1 * grad;
        second[i] = beta2 * second[i] + weight2 * grad * grad;
        const float move = rate * first[i] / (std::sqrt(second[i]) / root + eps);
        p[at + i] = p[at + i] * decay - (second[i] > 0 ? move : 0.f);
      }
      encode(map_of(true), first, count, m.codes + at, m.scales + block);
      encode(map_of(false), second, count, v.codes + at, v.scales + block);
    }
  });
}

}  // namespace mft::MFT_ISA
