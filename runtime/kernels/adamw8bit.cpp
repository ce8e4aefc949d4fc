#include "runtime/kernels/adamw8bit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int kCodes = 256;
constexpr int kExponents = 7;  // decades of the map

// Magnitudes below 2^-24 round to zero; above it, seven bits of the mantissa tell the code up to one comparison, since
// no two boundaries are that close.
constexpr int kLowestExponent = 127 - 24;
constexpr int kBins = 25 << 7;

class DynamicMap {
 public:
  explicit DynamicMap(bool is_signed) {
    float all[kCodes] = {0.f, 1.f};
    int count = 2;
    for (int decade = 0; decade < kExponents; ++decade) {
      const int fractions = is_signed ? 1 << decade : 2 << decade;
      for (int i = 0; i < fractions; ++i) {
        const double mean = 0.1 + 0.9 * (i + 0.5) / fractions;
        const float value = static_cast<float>(std::pow(10.0, decade - kExponents + 1) * mean);
        all[count++] = value;
        if (is_signed) all[count++] = -value;
      }
    }
    std::sort(all, all + kCodes);
    std::copy_n(all, kCodes, values);
    zero_ = static_cast<int>(std::lower_bound(values, values + kCodes, 0.f) - values);
    for (int c = zero_; c + 1 < kCodes; ++c) middles_[c] = (values[c] + values[c + 1]) / 2;
    middles_[kCodes - 1] = std::numeric_limits<float>::infinity();
    for (int bin = 0; bin < kBins; ++bin) {
      const uint32_t bits = static_cast<uint32_t>((kLowestExponent << 7) + bin) << 16;
      float least;
      std::memcpy(&least, &bits, sizeof(least));
      int code = zero_;
      while (least > middles_[code]) ++code;
      bins_[bin] = static_cast<uint8_t>(code);
    }
  }

  // Code nearest to x in [-1, 1].
  uint8_t encode(float x) const {
    const float magnitude = std::fabs(x);
    uint32_t bits;
    std::memcpy(&bits, &magnitude, sizeof(bits));
    const int bin = std::clamp(static_cast<int>(bits >> 16) - (kLowestExponent << 7), 0, kBins - 1);
    int code = bins_[bin];
    code += magnitude > middles_[code];
    // The negative side mirrors the positive one but for -1, which is missing.
    return static_cast<uint8_t>(x < 0 ? 2 * zero_ - std::min(code, kCodes - 2) : code);
  }

  float values[kCodes];

 private:
  int zero_;
  float middles_[kCodes] = {};
  uint8_t bins_[kBins];
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
  for (int64_t i = 0; i < n; ++i) codes[i] = map.encode(x[i] * inverse);
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
