// Rounds activations to the tiles that int8_rows.h describes, block by block of kInt8Block numbers of a row:
//
//   scale = largest magnitude / 127,   code = round(x / scale)   or, dithered, floor(x / scale + threshold).

#include "runtime/kernels/linear/int8_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/kernels/linear/int8_vec.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow
constexpr int kVecs = kInt8Block / kVec;
// Rows that are transposed together, those past the tile's zero.
constexpr int64_t kAll = kTileRows + kPackSlack;

VecI max_of(VecI a, VecI b) { return a > b ? a : b; }

VecI largest_in_block(const float* x, int64_t vecs) {
  VecI largest{};
  if (vecs == kVecs) {
#pragma GCC unroll 32
    for (int i = 0; i < kVecs; ++i) largest = max_of(largest, magnitude_bits(load(x + i * kVec)));
    return largest;
  }
  for (int64_t i = 0; i < vecs; ++i) largest = max_of(largest, magnitude_bits(load(x + i * kVec)));
  return largest;
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

// Of the rows of a tile, in one block.
struct BlockScales {
  alignas(64) float scale[kAll];
  alignas(64) float inverse[kAll];
};

// `largest` are those of each row, lane by lane; overwritten.
void find_scales(Vec largest[kAll], float most_code, BlockScales* out) {
  for (int64_t p = 0; p < kAll; p += kVec) {
    transpose(largest + p);
    VecI most{};
    for (int64_t j = 0; j < kVec; ++j) most = max_of(most, (VecI)largest[p + j]);
    const Vec value = (Vec)most, nan = splat(std::numeric_limits<float>::quiet_NaN());
    store(out->scale + p, most < kInfinityBits ? value / most_code : nan);
    store(out->inverse + p, value > splat(kSmallest) ? most_code / value : Vec{});
  }
}

// The rows of a tile in one block. Rows that lack some numbers, because columns are left out or the row ends, are
// copies with zeros.
struct BlockRows {
  const float* row[kTileRows];
  alignas(64) float copies[kTileRows][kInt8Block];

  // Columns [k0, k0 + count) of `rows` rows of x [.., k] from row `first` on, without the columns `outliers`.
  void take(const float* x, int64_t k, int64_t first, int64_t rows, int64_t k0, int64_t count,
            const int64_t* outliers) {
    int64_t left_out[kOutliers], left_out_count = 0;
    for (int64_t i = 0; outliers != nullptr && i < kOutliers; ++i) {
      if (outliers[i] >= k0 && outliers[i] < k0 + count) left_out[left_out_count++] = outliers[i] - k0;
    }
    for (int64_t r = 0; r < rows; ++r) {
      row[r] = x + (first + r) * k + k0;
      if (left_out_count == 0 && count == padded_row(count)) continue;
      std::memcpy(copies[r], row[r], static_cast<size_t>(count) * sizeof(float));
      std::fill(copies[r] + count, copies[r] + padded_row(count), 0.f);
      for (int64_t i = 0; i < left_out_count; ++i) copies[r][left_out[i]] = 0.f;
      row[r] = copies[r];
    }
  }
};

typedef int8_t BlockCodes[kAll][kInt8Block];

// Copies the codes of a block to their places in the tile: kRowDepth of each row together.
void place_runs(const BlockCodes& block, int64_t count, int8_t* codes, int32_t* starts) {
  std::fill(starts, starts + kTileRows, 0);
  for (int64_t i = 0; i < padded_row(count); i += kRowDepth) {
    for (int64_t r = 0; r < kTileRows; ++r) std::memcpy(codes + Int8Rows::index(i, r), block[r] + i, kRowDepth);
  }
}

// The same for kRowDepth 4. Four codes are 32 bits: transposed as floats are, and each store's slack is overwritten by
// the next. Behind each run of eight lie its corrections, if sums are of pairs; else sums start from what the offset of
// the weights adds.
void place_fours(const BlockCodes& block, int64_t count, int8_t* codes, int32_t* starts) {
  const int64_t steps = round_up(ceil_div(count, 4), 4);
  float* to = reinterpret_cast<float*>(codes);
  VecI totals[kAll / kVec] = {};
  for (int64_t s = 0; s < steps; s += kVec) {
    Vec part[kAll];
    for (int64_t r = 0; r < kAll; ++r) part[r] = load(reinterpret_cast<const float*>(block[r]) + s);
    for (int64_t p = 0; p < kAll; p += kVec) transpose(part + p);
    for (int64_t j = 0; j < std::min<int64_t>(kVec, steps - s); ++j, to += kTileRows) {
      for (int64_t p = 0; p < kAll; p += kVec) {
        store(to + p, part[p + j]);
        totals[p / kVec] = add_codes(totals[p / kVec], (VecI)part[p + j]);
      }
#if defined(MFT_PAIR_SUMS)
      if (j % 2 == 0) continue;
      to += kTileRows;
      for (int64_t p = 0; p < kAll; p += kVec) {
        store(to + p, (Vec)correction((VecI)part[p + j - 1], (VecI)part[p + j]));
      }
#endif
    }
  }
  alignas(64) int32_t all_starts[kAll];
  for (int64_t p = 0; p < kAll; p += kVec) {
    const VecI start = totals[p / kVec] * -kSumOffset;
    std::memcpy(all_starts + p, &start, sizeof(start));
  }
  std::copy(all_starts, all_starts + kTileRows, starts);
}

// Codes of a tile's rows; the largest of each block becomes `most_code`. `rounding(row)` gives the function that rounds
// vector i of a block, given the inverse of its scale.
template <typename Rounding>
void encode_tile(const float* x, const int64_t* outliers, const Int8Rows& out, int64_t tile, float most_code,
                 const Rounding& rounding) {
  const int64_t k = out.k, first = tile * kTileRows, rows = std::min(kTileRows, out.m - first);
  int8_t* codes = out.codes + tile * Int8Rows::tile_bytes(k);
  alignas(64) BlockCodes block = {};
  BlockRows from;
  for (int64_t b = 0; b < int8_row_blocks(k); ++b) {
    const int64_t k0 = b * kInt8Block, count = std::min(kInt8Block, k - k0);
    const int64_t at = out.tile_scales(tile) + b * kTileRows;
    from.take(x, k, first, rows, k0, count, outliers);
    const int64_t vecs = padded_row(count) / kVec;
    Vec largest[kAll] = {};
    for (int64_t r = 0; r < rows; ++r) largest[r] = (Vec)largest_in_block(from.row[r], vecs);
    BlockScales scales;
    find_scales(largest, most_code, &scales);
    std::copy(scales.scale, scales.scale + kTileRows, out.scales + at);
    for (int64_t r = 0; r < rows; ++r) {
      if (std::isnan(scales.scale[r])) {  // which makes NaN of any code
        std::memset(block[r], 0, kInt8Block);
        continue;
      }
      const auto round = rounding(first + r);
      const Vec inverse = splat(scales.inverse[r]);
      const auto encode = [&](int i) {
        store_i8(block[r] + i * kVec, round(i, load(from.row[r] + i * kVec), inverse));
      };
      if (vecs == kVecs) {
#pragma GCC unroll 32
        for (int i = 0; i < kVecs; ++i) encode(i);
      } else {
        for (int i = 0; i < vecs; ++i) encode(i);
      }
    }
    (kRowDepth > 4 ? place_runs : place_fours)(block, count, codes + Int8Rows::index(k0, 0), out.starts + at);
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
  encode_tile(x, outliers, out, tile, 127.f,
              [](int64_t) { return [](int, Vec v, Vec inverse) { return round_product(v, inverse); }; });
}

void dither_tile(const float* x, const Int8Rows& out, int64_t tile, int64_t call) {
  // Rounds up where the fraction is above a threshold; plus that the largest is still below 128.
  encode_tile(x, nullptr, out, tile, 126.99f, [&](int64_t row) {
    const double offset = std::fmod(static_cast<double>(row) * kRow + static_cast<double>(call) * kCall, 1.0);
    return [offset = static_cast<float>(offset)](int i, Vec v, Vec inverse) {
      const Vec moved = load(kThresholds.of + i * kVec) + offset;
      return __builtin_convertvector(v * inverse + (moved >= splat(1.f) ? moved - 1.f : moved), VecI);
    };
  });
}

void quantize_rows(const float* x, const int64_t* outliers, const Int8Rows& out) {
  parallel_for(Int8Rows::tiles(out.m), [&](int64_t tile) { quantize_tile(x, outliers, out, tile); });
}

}  // namespace mft::MFT_ISA
