#include "runtime/kernels/linear/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/attention/softmax_row.h"
#include "runtime/kernels/linear/decode.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_gemm.h"
#include "runtime/kernels/linear/int8_panel.h"
#include "runtime/kernels/linear/int8_rows.h"
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

// One range of the vocabulary: its tile, and what it has summed up for each row so far.
struct Range {
  float* logits;       // [rows, kEntries]
  float* maximum;      // [rows]
  float* total;        // [rows], sum of e^(logit - maximum)
  float* accumulator;  // [rows, K], sum of e^(logit - maximum) w
  Scratch rest;        // of the products

  Range(Scratch scratch, int64_t rows, int64_t k) : rest(scratch) {
    logits = rest.take(rows * kEntries);
    maximum = rest.take(2 * rows);
    total = maximum + rows;
    accumulator = rest.take(rows * k);
  }

  template <typename Products>
  static size_t bytes(int64_t rows, int64_t k) {
    ScratchSize size;
    size.take(rows * kEntries);
    size.take(2 * rows);
    size.take(rows * k);
    size.take_bytes(Products::range_bytes(rows));
    return size.bytes;
  }
};

// What all ranges share: up to kRows rows of x that have a target.
struct Block {
  const PackedWeight& w;
  int64_t count;
  const float* x;
  const int64_t* rows;  // [count], of x
  const int64_t* targets;
  float softcap;         // logits lie in (-softcap, softcap); 0: no limit
  float* target_logits;  // [count]
  float* const* dx;      // [count] rows, null where no gradient is wanted
  float* spare;          // [count, K], until the first tile
};

// The products of rows with the weight: logits of a tile, and what the tile adds to the gradient.
class FloatProducts {
 public:
  // Packs the rows, every chunk of k on its own.
  FloatProducts(const Block& block, Scratch& scratch) : w_(block.w), count_(block.count) {
    packed_x_ = scratch.take(packed_x_floats(count_, w_.cols));
    parallel_for(ceil_div(count_, kTileRows), [&](int64_t tile) {
      float* chunk = packed_x_;
      for (int64_t k0 = 0; k0 < w_.cols; k0 += kChunk) {
        const int64_t kc = std::min(kChunk, w_.cols - k0);
        const float* source[kTileRows];
        for (int64_t r = 0; r < kTileRows; ++r) {
          const int64_t i = tile * kTileRows + r;
          source[r] = i < count_ ? block.x + block.rows[i] * w_.cols + k0 : nullptr;
        }
        pack_tile(source, 1, kc, 1.f, chunk + tile * packed_floats(kTileRows, kc));
        chunk += packed_floats(count_, kc);
      }
    });
  }

  void logits(const Range& range, int64_t v0, int64_t entries) const {
    Scratch scratch = range.rest;
    float* panel = scratch.take(kChunk * kTileCols);
    for (int64_t v = 0; v < entries; v += kTileCols) {
      const int64_t nr = std::min(kTileCols, entries - v);
      const float* a = packed_x_;
      for (int64_t k0 = 0; k0 < w_.cols; k0 += kChunk) {
        const int64_t kc = std::min(kChunk, w_.cols - k0);
        load_panel(w_, v0 + v, nr, k0, kc, panel);
        multiply_panel(a, count_, kc, panel, kTileCols, range.logits + v, kEntries, nr, k0 > 0);
        a += packed_floats(count_, kc);
      }
    }
  }

  // Adds the tile of e^(logit - maximum) times W.
  void add_gradient(const Range& range, int64_t v0, int64_t entries, bool first) const {
    Scratch scratch = range.rest;
    float* panel = scratch.take(kChunk * kTileCols);
    float* packed = scratch.take(packed_floats(count_, kEntries));
    pack({range.logits, kEntries, 1}, count_, entries, 1.f, packed);
    for (int64_t k0 = 0; k0 < w_.cols; k0 += kTileCols) {
      const int64_t kr = std::min(kTileCols, w_.cols - k0);
      load_panel_transposed(w_, v0, entries, k0, kr, panel);
      multiply_panel(packed, count_, entries, panel, kTileCols, range.accumulator + k0, w_.cols, kr, !first);
    }
  }

  static size_t shared_bytes(int64_t rows, int64_t k) {
    ScratchSize size;
    size.take(packed_x_floats(rows, k));
    return size.bytes;
  }
  static size_t range_bytes(int64_t rows) {
    ScratchSize size;
    size.take(kChunk * kTileCols);
    size.take(packed_floats(rows, kEntries));
    return size.bytes;
  }

 private:
  static int64_t packed_x_floats(int64_t rows, int64_t k) { return ceil_div(k, kChunk) * packed_floats(rows, kChunk); }

  const PackedWeight& w_;
  int64_t count_;
  float* packed_x_;
};

class Int8Products {
 public:
  Int8Products(const Block& block, Scratch& scratch) : w_(block.w), count_(block.count) {
    const int64_t k = w_.cols;
    float* x = block.spare;
    for (int64_t i = 0; i < count_; ++i) std::copy_n(block.x + block.rows[i] * k, k, x + i * k);
    find_outliers(x, count_, k, scratch.take(k), columns_);
    left_out_ = std::lower_bound(columns_, columns_ + kOutliers, k) - columns_;
    codes_ = take_int8_rows(count_, k, scratch);
    quantize_rows(x, columns_, codes_);
    left_ = scratch.take(packed_floats(count_, kOutliers));
    for (int64_t i = 0; i < left_out_; ++i) {
      for (int64_t r = 0; r < round_up(count_, kTileRows); ++r) {
        left_[r / kTileRows * packed_floats(kTileRows, left_out_) + i * kTileRows + r % kTileRows] =
            r < count_ ? x[r * k + columns_[i]] : 0.f;
      }
    }
  }

  void logits(const Range& range, int64_t v0, int64_t entries) const {
    const MatrixUnit unit;
    const Room room(range.rest, count_);
    for (int64_t v = 0; v < entries; v += kTileCols) {
      const int64_t nr = std::min(kTileCols, entries - v);
      float* out = range.logits + v;
      for (int64_t i = 0; i < left_out_; ++i) {
        load_panel(w_, v0 + v, nr, columns_[i], 1, room.right + i * kTileCols);
      }
      multiply_panel(left_, count_, left_out_, room.right, kTileCols, out, kEntries, nr, false);
      for (int64_t k0 = 0; k0 < w_.cols; k0 += kInt8Chunk) {
        const int64_t kc = std::min(kInt8Chunk, w_.cols - k0);
        load_int8_panel(w_, v0 + v, nr, k0, kc, room.panel);
        for (int64_t tile = 0; tile < Int8Rows::tiles(count_); ++tile) {
          multiply_int8_panel(codes_, tile, k0, kc, room.panel, AddTo::kC, room.sums, out + tile * kTileRows * kEntries,
                              kEntries, nr);
        }
      }
    }
  }

  void add_gradient(const Range& range, int64_t v0, int64_t entries, bool first) const {
    const MatrixUnit unit;
    const Room room(range.rest, count_);
    for (int64_t r = 0; r < count_ && entries < kEntries; ++r) {
      std::fill(range.logits + r * kEntries + entries, range.logits + (r + 1) * kEntries, 0.f);
    }
    const int64_t tiles = Int8Rows::tiles(count_);
    for (int64_t tile = 0; tile < tiles; ++tile) dither_tile(range.logits, room.probabilities, tile, v0 / kEntries);
    for (int64_t k0 = 0; k0 < w_.cols; k0 += kTileCols) {
      const int64_t kr = std::min(kTileCols, w_.cols - k0);
      load_int8_panel_transposed(w_, v0, entries, k0, kr, room.panel);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        float* out = range.accumulator + tile * kTileRows * w_.cols + k0;
        multiply_int8_panel(room.probabilities, tile, 0, entries, room.panel, first ? AddTo::kNothing : AddTo::kC,
                            room.sums, out, w_.cols, kr);
      }
    }
  }

  static size_t shared_bytes(int64_t rows, int64_t k) {
    ScratchSize size;
    size.take(k);
    add_int8_rows(rows, k, size);
    size.take(packed_floats(rows, kOutliers));
    return size.bytes;
  }
  static size_t range_bytes(int64_t rows) {
    ScratchSize size;
    size.take_bytes(Int8Panel::kCodeBytes);
    size.take(Int8Panel::kScales);
    size.take(kOutliers * kTileCols);
    size.take(kTileRows * kTileCols);
    add_int8_rows(rows, kEntries, size);
    return size.bytes;
  }

 private:
  static_assert(kEntries == kInt8Block);  // a tile's probabilities of a row share one scale
  struct Room {
    Int8Panel panel;
    float* right;  // [kOutliers][kTileCols]
    float* sums;
    Int8Rows probabilities;

    Room(Scratch scratch, int64_t rows) {
      panel.codes = reinterpret_cast<uint8_t*>(scratch.take_bytes(Int8Panel::kCodeBytes));
      panel.scales = scratch.take(Int8Panel::kScales);
      right = scratch.take(kOutliers * kTileCols);
      sums = scratch.take(kTileRows * kTileCols);
      probabilities = take_int8_rows(rows, kEntries, scratch);
    }
  };

  const PackedWeight& w_;
  int64_t count_;
  int64_t columns_[kOutliers];
  int64_t left_out_;
  Int8Rows codes_;
  float* left_;  // of the columns left out, packed
};

// Adds the tile of entries [v0, v0 + entries) to the range's sums.
template <typename Products>
void add_tile(const Block& block, const Products& products, const Range& range, int64_t v0, int64_t entries,
              bool first) {
  const int64_t k = block.w.cols;
  products.logits(range, v0, entries);
  float highest[kRows];
  bool negligible = true;
  for (int64_t r = 0; r < block.count; ++r) {
    float* row = range.logits + r * kEntries;
    if (block.softcap > 0) softcap_row(row, entries, block.softcap);
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
    float* row = range.logits + r * kEntries;
    range.total[r] += block.softcap > 0 ? exp_row_with_slope(row, entries, range.maximum[r], block.softcap)
                                        : exp_row(row, entries, range.maximum[r]);
    // The target's share comes with its weights at the end: 1 - p, which is not the difference of two large products.
    const int64_t target = block.targets[r] - v0;
    if (target >= 0 && target < entries) row[target] = 0.f;
  }
  if (block.dx != nullptr) products.add_gradient(range, v0, entries, first);
}

template <typename Products>
void add_range(const Block& block, const Products& products, const Range& range, int64_t begin, int64_t end) {
  std::fill_n(range.maximum, block.count, -kInfinity);
  std::fill_n(range.total, block.count, 0.f);
  const int64_t panel_bytes = block.w.cols / block.w.format.group * static_cast<int64_t>(block.w.format.block_bytes());
  const auto bytes_at = [&](int64_t v) { return block.w.data + v / kPanelRows * panel_bytes; };
  const uint8_t* resident = bytes_at(begin);
  for (int64_t v0 = begin; v0 < end; v0 += kEntries) {
    const int64_t entries = std::min(kEntries, end - v0);
    add_tile(block, products, range, v0, entries, v0 == begin);
    const uint8_t* done = bytes_at(v0 + entries);
    if (done - resident >= static_cast<ptrdiff_t>(kSweepBytes) || v0 + entries == end) {
      if (block.w.read_once) drop_pages(resident, done);
      resident = done;
    }
  }
}

template <typename Products>
void cross_entropy(const float* x, int64_t m, const PackedWeight& w, const int64_t* targets, float softcap,
                   float* losses, float* dx, Scratch scratch) {
  const int64_t k = w.cols;
  const int64_t most = std::min(m, kRows);
  const int64_t range_entries = round_up(ceil_div(w.rows, thread_count()), kEntries);
  const int64_t ranges = ceil_div(w.rows, range_entries);
  const size_t range_bytes = Range::bytes<Products>(most, k);
  float* target_logits = scratch.take(most);
  std::byte* ranges_base = scratch.take_bytes(static_cast<size_t>(ranges) * range_bytes);
  const auto range_at = [&](int64_t r) {
    return Range({ranges_base + static_cast<size_t>(r) * range_bytes, range_bytes}, most, k);
  };

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
    const Block block{w,
                      count,
                      x,
                      rows,
                      row_targets,
                      softcap,
                      target_logits,
                      dx != nullptr ? row_dx : nullptr,
                      range_at(0).accumulator};
    Scratch shared = scratch;
    const Products products(block, shared);
    parallel_for(ranges, [&](int64_t r) {
      add_range(block, products, range_at(r), r * range_entries, std::min(w.rows, (r + 1) * range_entries));
    });
    parallel_for(count, [&](int64_t i) {
      float maximum = -kInfinity;
      for (int64_t r = 0; r < ranges; ++r) {
        maximum = std::max(maximum, range_at(r).maximum[i]);
      }
      float total = 0.f;
      for (int64_t r = 0; r < ranges; ++r) {
        const Range range = range_at(r);
        total += range.total[i] * std::exp(range.maximum[i] - maximum);
      }
      losses[rows[i]] = maximum - target_logits[i] + std::log(total);
      if (dx == nullptr) return;
      float* out = row_dx[i];  // holds the target's weights
      const float others = 1.f - std::exp(target_logits[i] - maximum) / total;
      const float ratio = softcap > 0 ? target_logits[i] / softcap : 0.f;
      for (int64_t j = 0; j < k; ++j) out[j] *= -others * (1.f - ratio * ratio);
      for (int64_t r = 0; r < ranges; ++r) {
        const Range range = range_at(r);
        const float factor = std::exp(range.maximum[i] - maximum) / total;
        const float* row = range.accumulator + i * k;
        for (int64_t j = 0; j < k; ++j) out[j] += factor * row[j];
      }
    });
  }
}

template <typename Products>
size_t cross_entropy_scratch_bytes(int64_t most, int64_t k) {
  ScratchSize size;
  size.take(most);
  size.take_bytes(static_cast<size_t>(thread_count()) * Range::bytes<Products>(most, k));
  return size.bytes + Products::shared_bytes(most, k);
}

}  // namespace

void linear_cross_entropy(Compute compute, const float* x, int64_t m, const PackedWeight& w, const int64_t* targets,
                          float softcap, float* losses, float* dx, Scratch scratch) {
  (compute == Compute::kInt8 ? cross_entropy<Int8Products> : cross_entropy<FloatProducts>)(x, m, w, targets, softcap,
                                                                                           losses, dx, scratch);
}

size_t linear_cross_entropy_scratch_bytes(Compute compute, int64_t max_m, int64_t, int64_t cols) {
  const int64_t most = std::min(max_m, kRows);
  return (compute == Compute::kInt8 ? cross_entropy_scratch_bytes<Int8Products>
                                    : cross_entropy_scratch_bytes<FloatProducts>)(most, cols);
}

}  // namespace mft::MFT_ISA
