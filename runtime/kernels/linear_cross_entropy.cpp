#include "runtime/kernels/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/decode.h"
#include "runtime/kernels/gemm.h"
#include "runtime/kernels/softmax_row.h"
#include "runtime/platform/sweep.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kIgnored = -100;
// Rows of x handled at once, and vocabulary entries of a tile.
constexpr int64_t kRows = 256;
constexpr int64_t kEntries = 128;
// A tile whose logits all lie this far below the running maxima adds less than e^-30 each.
constexpr float kNegligible = 30.f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Floats of kRows packed rows of x, in chunks of k.
int64_t packed_x_floats(int64_t rows, int64_t k) { return ceil_div(k, kChunk) * packed_floats(rows, kChunk); }

// One range of the vocabulary: its tile, and what it has summed up for each row so far.
struct Range {
  float* panel;        // [kChunk, 16]
  float* logits;       // [rows, kEntries]
  float* packed;       // the tile of probabilities, packed
  float* maximum;      // [rows]
  float* total;        // [rows], sum of e^(logit - maximum)
  float* accumulator;  // [rows, K], sum of e^(logit - maximum) w

  static int64_t floats(int64_t rows, int64_t k) {
    return kChunk * kTileCols + rows * kEntries + packed_floats(rows, kEntries) + 2 * rows + rows * k;
  }

  Range(float* base, int64_t rows) {
    panel = base;
    logits = panel + kChunk * kTileCols;
    packed = logits + rows * kEntries;
    maximum = packed + packed_floats(rows, kEntries);
    total = maximum + rows;
    accumulator = total + rows;
  }
};

// What all ranges share: up to kRows rows of x that have a target.
struct Block {
  const PackedWeight& w;
  int64_t count;
  const float* packed_x;
  const int64_t* targets;
  float* target_logits;  // [count]
  float* const* dx;      // [count] rows, null where no gradient is wanted
};

// Logits of entries [v0, v0 + entries).
void compute_logits(const Block& block, const Range& range, int64_t v0, int64_t entries) {
  const int64_t k = block.w.cols;
  for (int64_t v = 0; v < entries; v += kTileCols) {
    const int64_t nr = std::min(kTileCols, entries - v);
    const float* a = block.packed_x;
    for (int64_t k0 = 0; k0 < k; k0 += kChunk) {
      const int64_t kc = std::min(kChunk, k - k0);
      load_panel(block.w, v0 + v, nr, k0, kc, range.panel);
      multiply_panel(a, block.count, kc, range.panel, kTileCols, range.logits + v, kEntries, nr, k0 > 0);
      a += packed_floats(block.count, kc);
    }
  }
}

// Adds the tile of entries [v0, v0 + entries) to the range's sums.
void add_tile(const Block& block, const Range& range, int64_t v0, int64_t entries, bool first) {
  const int64_t k = block.w.cols;
  compute_logits(block, range, v0, entries);
  float highest[kRows];
  bool negligible = true;
  for (int64_t r = 0; r < block.count; ++r) {
    const float* row = range.logits + r * kEntries;
    const int64_t target = block.targets[r] - v0;
    if (target >= 0 && target < entries) {
      block.target_logits[r] = row[target];
      // Now, while its pages are in memory.
      if (block.dx != nullptr) decode_row(block.w, block.targets[r], block.dx[r]);
    }
    highest[r] = max_of(row, entries);
    negligible = negligible && highest[r] < range.maximum[r] - kNegligible;
  }
  if (negligible) return;

  for (int64_t r = 0; r < block.count; ++r) {
    if (highest[r] > range.maximum[r]) {
      const float factor = std::exp(range.maximum[r] - highest[r]);
      range.maximum[r] = highest[r];
      range.total[r] *= factor;
      if (block.dx != nullptr && !first) {
        float* row = range.accumulator + r * k;
        for (int64_t i = 0; i < k; ++i) row[i] *= factor;
      }
    }
    range.total[r] += exp_row(range.logits + r * kEntries, entries, range.maximum[r]);
  }
  if (block.dx == nullptr) return;
  pack({range.logits, kEntries, 1}, block.count, entries, 1.f, range.packed);
  for (int64_t k0 = 0; k0 < k; k0 += kTileCols) {
    const int64_t kr = std::min(kTileCols, k - k0);
    load_panel_transposed(block.w, v0, entries, k0, kr, range.panel);
    multiply_panel(range.packed, block.count, entries, range.panel, kTileCols, range.accumulator + k0, k, kr, !first);
  }
}

void add_range(const Block& block, const Range& range, int64_t begin, int64_t end) {
  std::fill_n(range.maximum, block.count, -kInfinity);
  std::fill_n(range.total, block.count, 0.f);
  const int64_t panel_bytes = block.w.cols / block.w.format.group * static_cast<int64_t>(block.w.format.block_bytes());
  const auto bytes_at = [&](int64_t v) { return block.w.data + v / kPanelRows * panel_bytes; };
  const uint8_t* resident = bytes_at(begin);
  for (int64_t v0 = begin; v0 < end; v0 += kEntries) {
    const int64_t entries = std::min(kEntries, end - v0);
    add_tile(block, range, v0, entries, v0 == begin);
    const uint8_t* done = bytes_at(v0 + entries);
    if (done - resident >= static_cast<ptrdiff_t>(kSweepBytes) || v0 + entries == end) {
      swept(resident, done);
      resident = done;
    }
  }
}

// Packs the rows `rows` of x, every chunk of k on its own.
void pack_rows(const float* x, const int64_t* rows, int64_t count, int64_t k, float* out) {
  parallel_for(ceil_div(count, kTileRows), [&](int64_t tile) {
    float* chunk = out;
    for (int64_t k0 = 0; k0 < k; k0 += kChunk) {
      const int64_t kc = std::min(kChunk, k - k0);
      const float* source[kTileRows];
      for (int64_t r = 0; r < kTileRows; ++r) {
        const int64_t i = tile * kTileRows + r;
        source[r] = i < count ? x + rows[i] * k + k0 : nullptr;
      }
      pack_tile(source, 1, kc, 1.f, chunk + tile * packed_floats(kTileRows, kc));
      chunk += packed_floats(count, kc);
    }
  });
}

}  // namespace

void linear_cross_entropy(const float* x, int64_t m, const PackedWeight& w, const int64_t* targets, float* losses,
                          float* dx, Scratch scratch) {
  const int64_t k = w.cols;
  const int64_t most = std::min(m, kRows);
  const int64_t range_entries = round_up(ceil_div(w.rows, thread_count()), kEntries);
  const int64_t ranges = ceil_div(w.rows, range_entries);
  const int64_t range_floats = Range::floats(most, k);
  float* packed_x = scratch.take(packed_x_floats(most, k));
  float* target_logits = scratch.take(most);
  float* range_base = scratch.take(ranges * range_floats);

  for (int64_t next = 0; next < m;) {
    int64_t rows[kRows];
    int64_t row_targets[kRows];
    float* row_dx[kRows];
    int64_t count = 0;
    for (; next < m && count < kRows; ++next) {
      if (targets[next] == kIgnored) {
        losses[next] = 0.f;
        if (dx != nullptr) std::fill_n(dx + next * k, k, 0.f);
        continue;
      }
      row_targets[count] = targets[next];
      row_dx[count] = dx != nullptr ? dx + next * k : nullptr;
      rows[count++] = next;
    }
    if (count == 0) break;
    pack_rows(x, rows, count, k, packed_x);
    const Block block{w, count, packed_x, row_targets, target_logits, dx != nullptr ? row_dx : nullptr};
    parallel_for(ranges, [&](int64_t r) {
      add_range(block, Range(range_base + r * range_floats, most), r * range_entries,
                std::min(w.rows, (r + 1) * range_entries));
    });
    parallel_for(count, [&](int64_t i) {
      float maximum = -kInfinity;
      for (int64_t r = 0; r < ranges; ++r) {
        maximum = std::max(maximum, Range(range_base + r * range_floats, most).maximum[i]);
      }
      float total = 0.f;
      for (int64_t r = 0; r < ranges; ++r) {
        const Range range(range_base + r * range_floats, most);
        total += range.total[i] * std::exp(range.maximum[i] - maximum);
      }
      losses[rows[i]] = maximum - target_logits[i] + std::log(total);
      if (dx == nullptr) return;
      float* out = row_dx[i];  // holds the target's weights
      for (int64_t j = 0; j < k; ++j) out[j] = -out[j];
      for (int64_t r = 0; r < ranges; ++r) {
        const Range range(range_base + r * range_floats, most);
        const float factor = std::exp(range.maximum[i] - maximum) / total;
        const float* row = range.accumulator + i * k;
        for (int64_t j = 0; j < k; ++j) out[j] += factor * row[j];
      }
    });
  }
}

size_t linear_cross_entropy_scratch_bytes(int64_t max_m, int64_t, int64_t cols) {
  const int64_t most = std::min(max_m, kRows);
  ScratchSize size;
  size.take(packed_x_floats(most, cols));
  size.take(most);
  size.take(thread_count() * Range::floats(most, cols));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
