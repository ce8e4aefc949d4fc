#pragma once

// What attention's forward and backward share: tiles of kBlock queries by kBlock keys, and which part of each is seen.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

// Larger is no faster, and leaves short sequences too few blocks to share out.
constexpr int64_t kBlock = 96;
constexpr int64_t kTile = kBlock * kBlock;
// The rows of a block, in strips of as many as are multiplied together.
constexpr int64_t kStrips = (kBlock + kTileRows - 1) / kTileRows;

// [begin, end); empty where begin >= end.
struct Range {
  int64_t begin;
  int64_t end;

  void add(int64_t from, int64_t to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
  }
};

// First and one past the last key that each query of a block sees.
struct Visible {
  int64_t rows;
  int64_t first[kBlock];
  int64_t last[kBlock];
  int64_t lowest;   // of all first
  int64_t latest;   // of all first
  int64_t highest;  // of all last

  // The block's queries start at i0; `past` keys come before query 0. Null positions: one row.
  Visible(const AttentionShape& shape, const int64_t* positions, int64_t past, int64_t i0) {
    rows = std::min(kBlock, shape.t - i0);
    lowest = std::numeric_limits<int64_t>::max();
    latest = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t place = past + i0 + r;
      first[r] = positions != nullptr ? place - positions[i0 + r] : 0;
      // Positions come from files: whatever they say, stay inside the keys.
      first[r] = std::clamp<int64_t>(first[r], 0, place);
      if (shape.window > 0) first[r] = std::max(first[r], place - shape.window + 1);
      last[r] = place + 1;
      lowest = std::min(lowest, first[r]);
      latest = std::max(latest, first[r]);
    }
    highest = past + i0 + rows;
  }
};

// The seen part of the tile of a block's queries and the keys [j0, j0 + keys); keys are counted from j0.
struct Seen {
  int64_t rows;
  int64_t keys;
  Range of_row[kBlock];       // keys that a query sees
  Range of_queries[kStrips];  // keys that a query of each strip sees
  Range of_keys[kStrips];     // queries that see a key of each strip

  Seen(const Visible& visible, int64_t j0, int64_t key_count) : rows(visible.rows), keys(key_count) {
    if (visible.latest <= j0 && visible.last[0] >= j0 + keys) {
      std::fill_n(of_row, rows, Range{0, keys});
      std::fill_n(of_queries, kStrips, Range{0, keys});
      std::fill_n(of_keys, kStrips, Range{0, rows});
      return;
    }
    std::fill_n(of_queries, kStrips, Range{kBlock, 0});
    std::fill_n(of_keys, kStrips, Range{kBlock, 0});
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = std::clamp<int64_t>(visible.first[r] - j0, 0, keys);
      const int64_t last = std::clamp<int64_t>(visible.last[r] - j0, first, keys);
      of_row[r] = {first, last};
      if (first == last) continue;
      of_queries[r / kTileRows].add(first, last);
      for (int64_t s = first / kTileRows; s * kTileRows < last; ++s) of_keys[s].add(r, r + 1);
    }
  }
};

// tile [rows, kBlock] = A B where it is seen: packed A [rows, k], panels B [k, keys].
inline void multiply_seen(const float* packed, int64_t k, const float* panels, const Seen& seen, float* tile) {
  for (int64_t n0 = 0; n0 < seen.keys; n0 += kTileCols) {
    const int64_t nr = std::min(kTileCols, seen.keys - n0);
    for (int64_t m0 = 0; m0 < seen.rows; m0 += kTileRows) {
      const Range& range = seen.of_queries[m0 / kTileRows];
      if (range.begin >= n0 + nr || range.end <= n0) continue;
      multiply_panel(packed + packed_floats(m0, k), std::min(kTileRows, seen.rows - m0), k, panels + n0 * k, kTileCols,
                     tile + m0 * kBlock + n0, kBlock, nr, false);
    }
  }
}

// C [m, n] (+)= A B, packed A [m, k], panels B [k, n]; a strip of rows of A is zero outside its range of k.
inline void multiply_ranges(const float* packed, int64_t m, int64_t k, const Range* ranges, const float* panels,
                            int64_t n, float* c, int64_t ldc, bool accumulate) {
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    for (int64_t m0 = 0; m0 < m; m0 += kTileRows) {
      const int64_t begin = ranges[m0 / kTileRows].begin;
      const int64_t count = std::max<int64_t>(0, ranges[m0 / kTileRows].end - begin);
      if (count == 0 && accumulate) continue;
      multiply_panel(packed + packed_floats(m0, k) + begin * kTileRows, std::min(kTileRows, m - m0), count,
                     panels + n0 * k + begin * kTileCols, kTileCols, c + m0 * ldc + n0, ldc,
                     std::min(kTileCols, n - n0), accumulate);
    }
  }
}

size_t attention_backward_scratch_bytes(const AttentionShape& shape);

}  // namespace mft::MFT_ISA
