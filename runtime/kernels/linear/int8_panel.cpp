// Loads 8-bit panels (int8_panel.h) from coded weights, 16 columns at a time.
//
// A stored panel of W [N, K] has 16 rows. A panel of W^T takes them as its columns: load_columns. A panel of W has
// columns of W as its columns, which run across stored panels: load_rows. Both give, for each column and block of
// kInt8Block of what is summed over,
//
//   scale = m / kWeightMax,   code = round(weight / scale) + kWeightOffset,
//
// where m is a bound of the weights' magnitudes in load_columns, which needs no look at the codes, and the largest
// magnitude itself in load_rows. The arithmetic is in 16 bits (int8_values.h).

#include "runtime/kernels/linear/int8_panel.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/int8_panel_f16.h"
#include "runtime/kernels/linear/int8_quads.h"
#include "runtime/kernels/linear/int8_values.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Values of W^T have 16 bits, kFull the largest: the code and 8 bits behind the point.
constexpr float kFull = 256.f * kWeightMax;
// To the nearest, and the offset. The high byte of the sum is the code in the panel.
constexpr int kRound = 128 + 256 * kWeightOffset;

// a b to the nearest integers, in both halves of each lane.
VecI product_twice(Vec a, Vec b) {
  const VecI whole = round_product(a, b) & 0xffff;
  return whole | whole << 16;
}

VecB high_bytes(VecHU even, VecHU odd) { return (VecB)(even >> 8 | (odd & (VecHU{} + 0xff00))); }

// Factors and middles of 16 columns, as both halves of each lane.
struct ColumnFactors {
  VecH factor[k16Vecs];
  VecHU middle[k16Vecs];
};

template <Code F>
ColumnFactors column_factors(const Block<F>& block, const Vec inverse[k16Vecs]) {
  ColumnFactors f;
  for (int v = 0; v < k16Vecs; ++v) {
    f.factor[v] = (VecH)product_twice(Fixed<F>::factor(block, v), inverse[v]);
    f.middle[v] = (VecHU)product_twice(Fixed<F>::middle(block, v), inverse[v]) + kRound;
  }
  return f;
}

// kDepth stored columns, which are rows of the panel, as codes of the panel.
template <Code F>
void encode_columns(const uint8_t* codes, const ColumnFactors& f, uint8_t* out) {
  VecB bytes[k16Vecs][kQuads];
  for (int q = 0; q < kQuads; ++q, codes += 4 * Block<F>::kColumnBytes) {
    VecB quads[k16Vecs];
    quads_of_columns<Fixed<F>::kNibbles>(codes, quads);
    for (int v = 0; v < k16Vecs; ++v) {
      VecHU even, odd;
      Fixed<F>::values(quads[v], f.factor[v], f.factor[v], f.middle[v], f.middle[v], &even, &odd);
      bytes[v][q] = high_bytes(even, odd);
    }
  }
  for (int v = 0; v < k16Vecs; ++v) store_columns(out + v * kVec * kDepth, bytes[v]);
}

// 16 columns of a panel of W^T: the rows of a stored panel.
template <Code F>
void load_columns(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, Int8Panel out) {
  const int64_t group = w.format.group;
  for (int64_t k = k0; k < k0 + kc; k += kInt8Block, out.scales += kTileCols) {
    const int64_t end = std::min(k + kInt8Block, k0 + kc);
    Vec most[k16Vecs] = {};
    for (int64_t g = k / group; g * group < end; ++g) {
      const Block<F> block(block_at<F>(w, panel, g));
      for (int v = 0; v < k16Vecs; ++v) most[v] = vmax(most[v], Fixed<F>::most(block, v));
    }
    Vec inverse[k16Vecs];
    for (int v = 0; v < k16Vecs; ++v) {
      most[v] = vmax(most[v], splat(kSmallest));
      inverse[v] = kFull / most[v];
      store(out.scales + v * kVec, most[v] * (1.f / kWeightMax));
    }
    for (int64_t at = k; at < end;) {
      const int64_t stop = std::min(end, (at / group + 1) * group);
      const Block<F> block(block_at<F>(w, panel, at / group));
      const ColumnFactors factors = column_factors(block, inverse);
      const uint8_t* codes = block.codes + at % group * Block<F>::kColumnBytes;
      for (; at < stop; at += kDepth, codes += kDepth * Block<F>::kColumnBytes, out.codes += kDepth * kTileCols) {
        encode_columns<F>(codes, factors, out.codes);
      }
    }
  }
}

// The bound of a block of W takes all rows at first, with 15 bits.
constexpr float kWhole = 32600.f;

// A block of W on the way: for each quad of rows the values of its rows 0 and 2, and 1 and 3, of every column.
struct RowValues {
  alignas(64) VecHU of[kInt8Block / 4][k16Vecs][2];
};

// The largest magnitude of both halves of each lane.
Vec largest_of(VecH pairs) {
  const VecI both = (VecI)pairs;
  const VecI low = both & 0xffff, high = both >> 16 & 0xffff;
  return to_float(low > high ? low : high);
}

VecH magnitude(VecHU values) {
  const VecH v = (VecH)values, minus = (VecH)(-values);  // as unsigned numbers, or the least had no negative
  return v > minus ? v : minus;
}

// Factors and middles of the 16 rows of a stored panel. Those of the four rows of a quad are two pairs, of rows 0 and 2
// and of rows 1 and 3, as they lie in a lane.
struct RowFactors {
  alignas(64) int32_t factors[kPanelRows];
  alignas(64) int32_t middles[kPanelRows];

  template <Code F>
  RowFactors(const Block<F>& block, float most) {
    const Vec inverse = splat(kWhole / most);
    for (int v = 0; v < k16Vecs; ++v) {
      const VecI factor = round_product(Fixed<F>::factor(block, v), inverse),
                 middle = round_product(Fixed<F>::middle(block, v), inverse);
      std::memcpy(factors + v * kVec, &factor, sizeof(factor));
      std::memcpy(middles + v * kVec, &middle, sizeof(middle));
    }
  }
  static VecI pair(const int32_t* of, int row) {
    return (VecI)(VecU{} + ((of[row] & 0xffffu) | static_cast<uint32_t>(of[row + 2]) << 16));
  }
};

// The values of 16 columns of one stored panel, and the largest magnitudes of all so far.
template <Code F>
void decode_rows(const Block<F>& block, int64_t column, float most, VecHU (*values)[k16Vecs][2],
                 VecH largest[k16Vecs]) {
  const RowFactors f(block, most);
  VecB quads[k16Vecs][4];
  const uint8_t* codes = block.codes + column * Block<F>::kColumnBytes;
  for (int v = 0; v < k16Vecs; ++v) {
    quads_of_rows<Fixed<F>::kNibbles>(codes + v * kVec * Block<F>::kColumnBytes, quads[v]);
  }
  for (int q = 0; q < 4; ++q) {
    const VecH even_factor = (VecH)RowFactors::pair(f.factors, 4 * q),
               odd_factor = (VecH)RowFactors::pair(f.factors, 4 * q + 1);
    const VecHU even_middle = (VecHU)RowFactors::pair(f.middles, 4 * q),
                odd_middle = (VecHU)RowFactors::pair(f.middles, 4 * q + 1);
    for (int v = 0; v < k16Vecs; ++v) {
      VecHU* both = values[q][v];
      Fixed<F>::values(quads[v][q], even_factor, odd_factor, even_middle, odd_middle, &both[0], &both[1]);
      const VecH even = magnitude(both[0]), odd = magnitude(both[1]), more = even > odd ? even : odd;
      largest[v] = largest[v] > more ? largest[v] : more;
    }
  }
}

// Vector v of the columns as codes of the panel: each column against its own largest magnitude. Writes its scales.
void encode_rows(const RowValues& values, int64_t quads, int v, VecH largest, float most, Int8Panel out) {
  const Vec column_most = vmax(largest_of(largest), splat(kWeightMax + 1.f));
  // Rounded down, so that no code exceeds kWeightMax.
  const VecI ratio = __builtin_convertvector(32768.f * kWeightMax / column_most, VecI);
  store(out.scales + v * kVec, (most / kWhole * 32768.f) / to_float(ratio));
  const VecH by = (VecH)(ratio | ratio << 16);
  for (int64_t s = 0; s < quads; s += kQuads) {
    VecB bytes[kQuads];
    for (int q = 0; q < kQuads; ++q) {
      const VecHU even = (VecHU)multiply_high((VecH)values.of[s + q][v][0], by),
                  odd = (VecHU)multiply_high((VecH)values.of[s + q][v][1], by);
      bytes[q] = (VecB)((even & (VecHU{} + 255)) | odd << 8) + static_cast<uint8_t>(kWeightOffset);
    }
    store_columns(out.codes + s * 4 * kTileCols + v * kVec * kDepth, bytes);
  }
}

// Brings what load_rows reads of the stored panels [first, end) into the cache: pieces far apart, which no prefetcher
// of the CPU's follows.
template <Code F>
void prefetch_rows(const PackedWeight& w, int64_t first, int64_t end, int64_t group, int64_t column) {
  constexpr int64_t kLine = 64;
  for (int64_t panel = first; panel < end; ++panel) {
    const uint8_t* block = block_at<F>(w, panel, group);
    const uint8_t* codes = block + Block<F>::kHeader + column * Block<F>::kColumnBytes;
    for (int64_t i = 0; i < Block<F>::kHeader; i += kLine) __builtin_prefetch(block + i);
    for (int64_t i = 0; i < kPanelRows * Block<F>::kColumnBytes; i += kLine) __builtin_prefetch(codes + i);
  }
}

// 16 columns of a panel of W, from the stored panels of rows [n0, n0 + nc).
template <Code F>
void load_rows(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, Int8Panel out) {
  const int64_t group = k0 / w.format.group, column = k0 % w.format.group;
  const int64_t last = round_up(n0 + nc, kPanelRows) / kPanelRows;
  RowValues values;
  prefetch_rows<F>(w, n0 / kPanelRows, std::min(last, (n0 + kInt8Block) / kPanelRows), group, column);
  for (int64_t n = n0; n < n0 + nc; n += kInt8Block, out.scales += kTileCols) {
    const int64_t first = n / kPanelRows, end = std::min(last, (n + kInt8Block) / kPanelRows);
    prefetch_rows<F>(w, end, std::min(last, end + kInt8Block / kPanelRows), group, column);
    Vec bound = splat(kSmallest);
    for (int64_t panel = first; panel < end; ++panel) {
      const Block<F> block(block_at<F>(w, panel, group));
      for (int v = 0; v < k16Vecs; ++v) bound = vmax(bound, Fixed<F>::most(block, v));
    }
    const float most = max_lane(bound);
    VecH largest[k16Vecs] = {};
    for (int64_t panel = first; panel < end; ++panel) {
      const Block<F> block(block_at<F>(w, panel, group));
      decode_rows(block, column, most, values.of + (panel - first) * (kPanelRows / 4), largest);
    }
    const int64_t quads = (end - first) * (kPanelRows / 4);
    for (int v = 0; v < k16Vecs; ++v) encode_rows(values, quads, v, largest[v], most, out);
    out.codes += quads * 4 * kTileCols;
  }
}

}  // namespace

void load_int8_panel(const PackedWeight& w, int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) {
  with_code(w.format.code, [&](auto f) {
    for (int64_t j = 0; j < nr; j += kPanelRows) {
      const int64_t panel = (n0 + j) / kPanelRows;
      if constexpr (f() == Code::kF16) {
        load_f16_columns(w, panel, k0, kc, out.at(j));
      } else {
        load_columns<f()>(w, panel, k0, kc, out.at(j));
      }
    }
  });
}

void load_int8_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, int64_t kr, Int8Panel out) {
  with_code(w.format.code, [&](auto f) {
    for (int64_t j = 0; j < kr; j += kPanelRows) {
      if constexpr (f() == Code::kF16) {
        load_f16_rows(w, n0, nc, k0 + j, out.at(j));
      } else {
        load_rows<f()>(w, n0, nc, k0 + j, out.at(j));
      }
    }
  });
}

}  // namespace mft::MFT_ISA
