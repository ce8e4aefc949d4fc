#include "runtime/kernels/int8_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernels/int8_vec.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow
constexpr int kVecs = kInt8Block / kVec;
// Rows that are transposed together, those past the tile's zero.
constexpr int64_t kAll = kTileRows + kPackSlack;

// Codes of one row's block, the largest of them `most_code` in magnitude; returns their sum. `round` makes them of
// vector i and the inverse of the scale.
template <typename Round>
int32_t encode_block(const float* x, float most_code, const Round& round, int8_t* codes, float* scale) {
  Vec largest{}, nothing{};  // NaN where a value is not finite
#pragma GCC unroll 32
  for (int i = 0; i < kVecs; ++i) {
    const Vec v = load(x + i * kVec);
    largest = vmax(vmax(v, -v), largest);
    nothing += v - v;
  }
  const float most = max_lane(largest);
  const float none = sum(nothing);
  *scale = most / most_code + none;
  if (!(none == 0.f)) {  // the scale makes NaN of any code
    std::memset(codes, 0, kInt8Block);
    return 0;
  }
  const Vec inverse = splat(most > kSmallest ? most_code / most : 0.f);
  VecI total{};
#pragma GCC unroll 32
  for (int i = 0; i < kVecs; ++i) {
    const VecI rounded = round(i, load(x + i * kVec), inverse);
    total += rounded;
    store_i8(codes + i * kVec, rounded);
  }
  return static_cast<int32_t>(sum(to_float(total)));  // exact: below 2^24
}

int32_t quantize_block(const float* x, int8_t* codes, float* scale) {
  const auto nearest = [](int, Vec v, Vec inverse) { return round_product(v, inverse); };
  return encode_block(x, 127.f, nearest, codes, scale);
}

// Multiples of the golden ratio, of the plastic number and its square, modulo 1: evenly spread, however many.
constexpr double kAlong = 0.6180339887498949, kRow = 0.7548776662466927, kCall = 0.5698402909980532;

struct Thresholds {
  alignas(64) float of[kInt8Block];
  constexpr Thresholds() : of() {
    double value = 0;
    for (float& threshold : of) {
      threshold = static_cast<float>(value);
      value = value + kAlong < 1 ? value + kAlong : value + kAlong - 1;
    }
  }
};
constexpr Thresholds kThresholds;

// Rounds up where the fraction is above a threshold; those of the block are moved by `offset` in [0, 1).
int32_t dither_block(const float* x, float offset, int8_t* codes, float* scale) {
  const auto dithered = [&](int i, Vec v, Vec inverse) {
    const Vec moved = load(kThresholds.of + i * kVec) + offset;
    return __builtin_convertvector(v * inverse + (moved >= splat(1.f) ? moved - 1.f : moved), VecI);
  };
  return encode_block(x, 126.99f, dithered, codes, scale);  // plus a threshold it is still below 128
}

// encode(row, x, codes, scale) for each of the tile's rows and blocks.
template <typename Encode>
void encode_tile(const float* x, const int64_t* outliers, const Int8Rows& out, int64_t tile, const Encode& encode) {
  const int64_t k = out.k, rows = std::min(kTileRows, out.m - tile * kTileRows);
  int8_t* codes = out.codes + tile * Int8Rows::tile_bytes(k);
  alignas(64) int8_t block[kAll][kInt8Block] = {};
  alignas(64) float copy[kInt8Block];
  for (int64_t b = 0; b < int8_row_blocks(k); ++b) {
    const int64_t k0 = b * kInt8Block, count = std::min(kInt8Block, k - k0), steps = ceil_div(count, 4);
    int64_t left_out[kOutliers], left_out_count = 0;
    for (int64_t i = 0; outliers != nullptr && i < kOutliers; ++i) {
      if (outliers[i] >= k0 && outliers[i] < k0 + count) left_out[left_out_count++] = outliers[i] - k0;
    }
    const int64_t at = out.tile_scales(tile) + b * kTileRows;
    for (int64_t r = 0; r < kTileRows; ++r) {
      if (r >= rows) {
        out.scales[at + r] = 0.f;
        out.starts[at + r] = 0;
        continue;
      }
      const float* row = x + (tile * kTileRows + r) * k + k0;
      if (left_out_count > 0 || count < kInt8Block) {
        std::memcpy(copy, row, static_cast<size_t>(count) * sizeof(float));
        std::fill(copy + count, copy + kInt8Block, 0.f);
        for (int64_t i = 0; i < left_out_count; ++i) copy[left_out[i]] = 0.f;
        row = copy;
      }
      out.starts[at + r] = -kSumOffset * encode(tile * kTileRows + r, row, block[r], &out.scales[at + r]);
    }
    if constexpr (kDepth == 8) {
      for (int64_t i = 0; i < round_up(count, 16); i += kDepth) {
        for (int64_t r = 0; r < kTileRows; ++r) std::memcpy(codes + Int8Rows::index(k0 + i, r), block[r] + i, kDepth);
      }
      continue;
    }
    // Four codes are 32 bits: transposed as floats are, and each store's slack is overwritten by the next.
    float* to = reinterpret_cast<float*>(codes + Int8Rows::index(k0, 0));
    for (int64_t s = 0; s < round_up(steps, 4); s += kVec) {
      Vec part[kAll];
      for (int64_t r = 0; r < kAll; ++r) part[r] = load(reinterpret_cast<const float*>(block[r]) + s);
      for (int64_t p = 0; p < kAll; p += kVec) transpose(part + p);
      for (int64_t j = 0; j < std::min<int64_t>(kVec, round_up(steps, 4) - s); ++j, to += kTileRows) {
        for (int64_t p = 0; p < kAll; p += kVec) store(to + p, part[p + j]);
#if defined(MFT_PAIR_SUMS)
        if (j % 2 == 0) continue;
        to += kTileRows;
        for (int64_t p = 0; p < kAll; p += kVec) {
          store(to + p, (Vec)correction((VecI)part[p + j - 1], (VecI)part[p + j]));
        }
#endif
      }
    }
  }
}

}  // namespace

Int8Rows take_int8_rows(int64_t m, int64_t k, Scratch& scratch) {
  Int8Rows rows{m, k, nullptr, nullptr, nullptr};
  rows.codes =
      reinterpret_cast<int8_t*>(scratch.take_bytes(static_cast<size_t>(Int8Rows::tiles(m) * Int8Rows::tile_bytes(k))));
  rows.scales = scratch.take(static_cast<size_t>(Int8Rows::scale_count(m, k)));
  rows.starts = reinterpret_cast<int32_t*>(scratch.take(static_cast<size_t>(Int8Rows::scale_count(m, k))));
  return rows;
}

void add_int8_rows(int64_t m, int64_t k, ScratchSize& size) {
  size.take_bytes(static_cast<size_t>(Int8Rows::tiles(m) * Int8Rows::tile_bytes(k)));
  size.take(static_cast<size_t>(Int8Rows::scale_count(m, k)));
  size.take(static_cast<size_t>(Int8Rows::scale_count(m, k)));
}

void find_outliers(const float* x, int64_t m, int64_t k, float* largest, int64_t outliers[kOutliers]) {
  constexpr int64_t kStrip = 8 * kVec;
  parallel_ranges(k, kStrip, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    Vec most[8] = {};
    for (int64_t i = 0; i < m; ++i) {
      const float* row = x + i * k + begin;
      if (count == kStrip) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; ++v) most[v] = vmax(most[v], vmax(load(row + v * kVec), -load(row + v * kVec)));
        continue;
      }
      for (int64_t j = 0; j < count; j += kVec) {
        const Vec v = load_part(row + j, std::min<int64_t>(kVec, count - j));
        most[j / kVec] = vmax(most[j / kVec], vmax(v, -v));
      }
    }
    for (int64_t j = 0; j < count; j += kVec) {
      store_part(largest + begin + j, most[j / kVec], std::min<int64_t>(kVec, count - j));
    }
  });
  // The largest so far, in descending order; of equal ones the first.
  std::fill(outliers, outliers + kOutliers, k);
  const auto value = [&](int64_t column) { return column < k ? largest[column] : -1.f; };
  for (int64_t column = 0; column < k; ++column) {
    if (!(largest[column] > value(outliers[kOutliers - 1]))) continue;
    int64_t at = kOutliers - 1;
    for (; at > 0 && largest[column] > value(outliers[at - 1]); --at) outliers[at] = outliers[at - 1];
    outliers[at] = column;
  }
  std::sort(outliers, outliers + kOutliers);
}

void quantize_tile(const float* x, const int64_t* outliers, const Int8Rows& out, int64_t tile) {
  encode_tile(x, outliers, out, tile,
              [](int64_t, const float* row, int8_t* codes, float* scale) { return quantize_block(row, codes, scale); });
}

void dither_tile(const float* x, const Int8Rows& out, int64_t tile, int64_t call) {
  encode_tile(x, nullptr, out, tile, [&](int64_t r, const float* row, int8_t* codes, float* scale) {
    const double offset = std::fmod(static_cast<double>(r) * kRow + static_cast<double>(call) * kCall, 1.0);
    return dither_block(row, static_cast<float>(offset), codes, scale);
  });
}

void quantize_rows(const float* x, const int64_t* outliers, const Int8Rows& out) {
  parallel_for(Int8Rows::tiles(out.m), [&](int64_t tile) { quantize_tile(x, outliers, out, tile); });
}

}  // namespace mft::MFT_ISA
