#include "runtime/kernels/linear/int8_factors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/kernels/linear/int8_quads.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr float kSmallest = 1e-35f;  // below, the inverse of the scale may overflow

// Rows [begin, begin + count) of a vector of columns, of which `lanes` count.
struct Strip {
  const float* x;
  int64_t ld;
  int64_t lanes;
  const float* factors;
  int64_t begin;
  int64_t count;

  // Past the last row, zeros.
  Vec row(int64_t i) const {
    if (i >= count) return Vec{};
    const float* from = x + (begin + i) * ld;
    const Vec values = lanes == kVec ? load(from) : load_part(from, lanes);
    return factors != nullptr ? values * factors[begin + i] : values;
  }

  // The scales of the columns; the largest magnitude becomes the code `most_code`. A column that holds NaN or an
  // infinity gets the scale NaN. Returns their inverses.
  Vec find_scales(float most_code, Vec* scale) const {
    VecI most{};
    for (int64_t i = 0; i < count; ++i) {
      const VecI bits = magnitude_bits(row(i));
      most = bits > most ? bits : most;
    }
    const Vec value = (Vec)most, nan = splat(std::numeric_limits<float>::quiet_NaN());
    *scale = most < kInfinityBits ? value / most_code : nan;
    return value > splat(kSmallest) && most < kInfinityBits ? most_code / value : Vec{};
  }

  // The codes of rows i to i + 3, in a lane for each column.
  template <unsigned kOffset>
  VecB quad(int64_t i, Vec inverse) const {
    const Vec values[4] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
    return quad_of_values<kOffset>(values, inverse);
  }
};

constexpr int64_t kAll = kTileRows + kPackSlack;  // rows of a tile that are stored; the next store overwrites the last
constexpr int kAllVecs = kAll / kVec;

// The codes of a block, four of each column in a lane, and some slack.
struct Quads {
  alignas(64) int32_t of[kInt8Block / 4][kMostColumns + kAll];
  alignas(64) float scales[kMostColumns + kAll];
};

#if defined(__AMX_INT8__)
static_assert(kAllVecs == 1 && kRun / 4 == kVec, "a run of codes is transposed in registers");

void place_run(const Quads& quads, int64_t from, int64_t first, int8_t* codes) {
  Vec run[kVec];
  for (int64_t q = 0; q < kVec; ++q) run[q] = load(reinterpret_cast<const float*>(quads.of[from + q] + first));
  transpose(run);
  for (int64_t r = 0; r < kTileRows; ++r) store_wide(codes + r * kRun, (VecB)run[r]);
}
#endif

// Copies the quads [0, count) of the columns from `first` on to their places in a tile.
void place_quads(const Quads& quads, int64_t count, int64_t first, int8_t* codes, float* scales, int32_t* starts) {
  std::copy(quads.scales + first, quads.scales + first + kTileRows, scales);
#if defined(__AMX_INT8__)
  for (int64_t i = 0; i < count; i += kRun / 4, codes += kTileRows * kRun) place_run(quads, i, first, codes);
  std::fill(starts, starts + kTileRows, 0);
#else
  VecI totals[kAllVecs] = {};
  for (int64_t i = 0; i < count; i += kRun / 4, codes += kTileRows * kRunBytes) {
    VecB run[kAllVecs][kRun / 4];
    for (int v = 0; v < kAllVecs; ++v) {
      for (int q = 0; q < kRun / 4; ++q) {
        run[v][q] = load_wide(quads.of[i + q] + first + v * kVec);
        totals[v] = add_codes(totals[v], (VecI)run[v][q]);
      }
    }
    for (int q = 0; q < kRun / 4; q += kQuads) {
      for (int v = 0; v < kAllVecs; ++v) {
        store_columns(reinterpret_cast<uint8_t*>(codes) + (q * kTileRows + v * kVec * kQuads) * 4, run[v] + q);
      }
    }
#if defined(MFT_PAIR_SUMS)
    for (int v = 0; v < kAllVecs; ++v) {
      store_wide(codes + 8 * kTileRows + v * kVecBytes, (VecB)correction((VecI)run[v][0], (VecI)run[v][1]));
    }
#endif
  }
  alignas(64) int32_t all_starts[kAll];
  for (int v = 0; v < kAllVecs; ++v) {
    const VecI start = totals[v] * -kSumOffset;
    std::memcpy(all_starts + v * kVec, &start, sizeof(start));
  }
  std::copy(all_starts, all_starts + kTileRows, starts);
#endif
}

}  // namespace

void encode_tiles(const float* x, int64_t ld, int64_t n, const float* factors, const Int8Rows& out, int64_t tile) {
  Quads quads;
  for (int64_t k0 = 0; k0 < out.k; k0 += kInt8Block) {
    const int64_t count = std::min(kInt8Block, out.k - k0), quad_count = round_up(count, kRun) / 4;
    for (int64_t c = 0; c < round_up(n, kTileRows); c += kVec) {
      const Strip strip{x + c, ld, std::clamp<int64_t>(n - c, 0, kVec), factors, k0, count};
      Vec scale;
      const Vec inverse = strip.find_scales(127.f, &scale);
      store(quads.scales + c, scale);
      for (int64_t i = 0; i < quad_count; ++i) store_wide(quads.of[i] + c, strip.quad<0>(4 * i, inverse));
    }
    for (int64_t t = tile, c = 0; c < n; ++t, c += kTileRows) {
      const int64_t at = out.tile_scales(t) + k0 / kInt8Block * kTileRows;
      place_quads(quads, quad_count, c, out.codes + t * Int8Rows::tile_bytes(out.k) + Int8Rows::index(k0, 0),
                  out.scales + at, out.starts + at);
    }
  }
}

void encode_panel(const float* x, int64_t ld, int64_t k, int64_t n, const float* factors, Int8Panel out) {
  for (int64_t k0 = 0; k0 < k; k0 += kInt8Block, out = out.next()) {
    const int64_t count = std::min(kInt8Block, k - k0);
    for (int64_t c = 0; c < kTileCols; c += kVec) {
      const Strip strip{x + c, ld, std::clamp<int64_t>(n - c, 0, kVec), factors, k0, count};
      Vec scale;
      const Vec inverse = strip.find_scales(kWeightMax, &scale);
      store(out.scales + c, scale);
      for (int64_t i = 0; i < round_up(count, kRun); i += kDepth) {
        VecB quads[kQuads];
        for (int q = 0; q < kQuads; ++q) quads[q] = strip.quad<kWeightOffset>(i + 4 * q, inverse);
        store_columns(out.codes + i * kTileCols + c * kDepth, quads);
      }
    }
  }
}

}  // namespace mft::MFT_ISA
