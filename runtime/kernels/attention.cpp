#include "runtime/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/gemm.h"
#include "runtime/kernels/softmax_row.h"
#include "runtime/kernels/threads.h"
#include "runtime/kernels/vec.h"

namespace mft {
namespace {

// Queries and keys of a tile. Larger is no faster, and leaves short sequences too few blocks to share out.
constexpr int64_t kBlock = 64;
constexpr int64_t kTile = kBlock * kBlock;

int64_t product_floats(int64_t dim) { return sgemm_scratch_floats(kBlock, std::max(kBlock, dim)); }

// Keys and values of one span of absolute places [begin, end), row 0 of k and v being `begin`.
struct Span {
  const float* k;
  const float* v;
  int64_t begin;
  int64_t end;
};

// First and one past the last key that each query of a block sees.
struct Visible {
  int64_t first[kBlock];
  int64_t last[kBlock];
  int64_t lowest;   // of all first
  int64_t highest;  // of all last

  // The block's queries start at i0; `past` keys come before query 0. Null positions: one row.
  Visible(const AttentionShape& shape, const int64_t* positions, int64_t past, int64_t i0, int64_t rows) {
    lowest = std::numeric_limits<int64_t>::max();
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t place = past + i0 + r;
      first[r] = positions != nullptr ? place - positions[i0 + r] : 0;
      // Positions come from files: whatever they say, stay inside the keys.
      first[r] = std::clamp<int64_t>(first[r], 0, place);
      if (shape.window > 0) first[r] = std::max(first[r], place - shape.window + 1);
      last[r] = place + 1;
      lowest = std::min(lowest, first[r]);
    }
    highest = past + i0 + rows;
  }
};

// y[i] *= factor.
void scale_row(float* y, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

// One head's block of queries against the keys it sees. q and o point to the block's first row.
// log_sum [rows] may be null.
void forward_block(const AttentionShape& shape, const Visible& visible, int64_t rows, const float* q, const Span* spans,
                   int count, float* o, float* log_sum, float* tile, float* product) {
  const int64_t ldq = shape.heads * shape.dim;
  const int64_t ldk = shape.kv_heads * shape.dim;
  float maximum[kBlock];
  float total[kBlock];
  std::fill_n(maximum, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(total, rows, 0.f);
  for (int64_t r = 0; r < rows; ++r) std::fill_n(o + r * ldq, shape.dim, 0.f);

  for (int s = 0; s < count; ++s) {
    const Span& span = spans[s];
    const int64_t end = std::min(span.end, visible.highest);
    for (int64_t j0 = std::max(span.begin, visible.lowest); j0 < end; j0 += kBlock) {
      const int64_t keys = std::min(kBlock, end - j0);
      const float* k = span.k + (j0 - span.begin) * ldk;
      const float* v = span.v + (j0 - span.begin) * ldk;
      sgemm(rows, keys, shape.dim, {q, ldq, 1}, {k, 1, ldk}, shape.scale, tile, kBlock, false, product);
      for (int64_t r = 0; r < rows; ++r) {
        float* row = tile + r * kBlock;
        const int64_t first = std::clamp<int64_t>(visible.first[r] - j0, 0, keys);
        const int64_t last = std::clamp<int64_t>(visible.last[r] - j0, first, keys);
        std::fill(row, row + first, 0.f);
        std::fill(row + last, row + keys, 0.f);
        if (first == last) continue;
        const float high = max_of(row + first, last - first);
        if (high > maximum[r]) {
          const float factor = std::exp(maximum[r] - high);
          total[r] *= factor;
          scale_row(o + r * ldq, shape.dim, factor);
          maximum[r] = high;
        }
        total[r] += exp_row(row + first, last - first, maximum[r]);
      }
      sgemm(rows, shape.dim, keys, {tile, kBlock, 1}, {v, ldk, 1}, 1.f, o, ldq, true, product);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    scale_row(o + r * ldq, shape.dim, 1.f / total[r]);
    if (log_sum != nullptr) log_sum[r] = maximum[r] + std::log(total[r]);
  }
}

void forward(const AttentionShape& shape, const float* q, const Span* spans, int count, const int64_t* positions,
             int64_t past, float* o, float* lse, Scratch scratch) {
  const int64_t blocks = ceil_div(shape.t, kBlock);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t per_worker = kTile + product_floats(shape.dim);
  float* work = scratch.take(thread_count() * per_worker);
  parallel_for_worker(blocks * shape.heads, [&](int64_t item, int64_t worker) {
    // Late blocks see most keys: start with them.
    const int64_t i0 = (blocks - 1 - item / shape.heads) * kBlock;
    const int64_t head = item % shape.heads;
    const int64_t rows = std::min(kBlock, shape.t - i0);
    const int64_t at = (i0 * shape.heads + head) * shape.dim;
    const int64_t kv_at = head / group * shape.dim;
    Span mine[2];
    for (int s = 0; s < count; ++s) {
      mine[s] = {spans[s].k + kv_at, spans[s].v + kv_at, spans[s].begin, spans[s].end};
    }
    float* tile = work + worker * per_worker;
    forward_block(shape, Visible(shape, positions, past, i0, rows), rows, q + at, mine, count, o + at,
                  lse != nullptr ? lse + head * shape.t + i0 : nullptr, tile, tile + kTile);
  });
}

struct BackwardInputs {
  const AttentionShape& shape;
  const float* dout;
  const float* q;
  const float* k;
  const float* v;
  const float* lse;
  const float* delta;  // [heads, T], dout_i . o_i
};

// Recomputes p and ds (scale not yet in it) of one tile, [rows, kBlock] each.
void backward_tile(const BackwardInputs& in, const Visible& visible, int64_t head, int64_t i0, int64_t rows, int64_t j0,
                   int64_t keys, float* p, float* ds, float* product) {
  const AttentionShape& shape = in.shape;
  const int64_t ldq = shape.heads * shape.dim;
  const int64_t ldk = shape.kv_heads * shape.dim;
  const int64_t at = i0 * ldq + head * shape.dim;
  const int64_t kv_at = j0 * ldk + head / (shape.heads / shape.kv_heads) * shape.dim;
  sgemm(rows, keys, shape.dim, {in.q + at, ldq, 1}, {in.k + kv_at, 1, ldk}, shape.scale, p, kBlock, false, product);
  sgemm(rows, keys, shape.dim, {in.dout + at, ldq, 1}, {in.v + kv_at, 1, ldk}, 1.f, ds, kBlock, false, product);
  const float* lse = in.lse + head * shape.t + i0;
  const float* delta = in.delta + head * shape.t + i0;
  for (int64_t r = 0; r < rows; ++r) {
    float* prow = p + r * kBlock;
    float* drow = ds + r * kBlock;
    const int64_t first = std::clamp<int64_t>(visible.first[r] - j0, 0, keys);
    const int64_t last = std::clamp<int64_t>(visible.last[r] - j0, first, keys);
    std::fill(prow, prow + first, 0.f);
    std::fill(prow + last, prow + keys, 0.f);
    exp_row(prow + first, last - first, lse[r]);
    for (int64_t j = 0; j < keys; ++j) drow[j] = prow[j] * (drow[j] - delta[r]);
  }
}

}  // namespace

void attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                       const int64_t* positions, float* o, float* lse, Scratch scratch) {
  const Span span{k, v, 0, shape.t};
  forward(shape, q, &span, 1, positions, 0, o, lse, scratch);
}

void attention_decode(const AttentionShape& shape, const float* q, const float* k, const float* v, const float* k_cache,
                      const float* v_cache, int64_t past_len, float* o, Scratch scratch) {
  const Span spans[] = {{k_cache, v_cache, 0, past_len}, {k, v, past_len, past_len + shape.t}};
  forward(shape, q, spans, 2, nullptr, past_len, o, nullptr, scratch);
}

void attention_backward(const AttentionShape& shape, const float* dout, const float* q, const float* k, const float* v,
                        const float* o, const float* lse, const int64_t* positions, float* dq, float* dk, float* dv,
                        Scratch scratch) {
  const int64_t t = shape.t;
  const int64_t dim = shape.dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t ldq = shape.heads * dim;
  const int64_t ldk = shape.kv_heads * dim;
  const int64_t blocks = ceil_div(t, kBlock);
  const int64_t per_worker = 2 * kTile + product_floats(dim);
  float* delta = scratch.take(shape.heads * t);
  float* work = scratch.take(thread_count() * per_worker);
  const BackwardInputs in{shape, dout, q, k, v, lse, delta};

  parallel_ranges(t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t at = i * ldq + head * dim;
        Vec dots{};
        for (int64_t d = 0; d < dim; d += kVec) dots += load(dout + at + d) * load(o + at + d);
        delta[head * t + i] = sum(dots);
      }
    }
  });

  // dq: a block of queries over its keys.
  parallel_for_worker(blocks * shape.heads, [&](int64_t item, int64_t worker) {
    const int64_t i0 = (blocks - 1 - item / shape.heads) * kBlock;
    const int64_t head = item % shape.heads;
    const int64_t rows = std::min(kBlock, t - i0);
    float* p = work + worker * per_worker;
    float* ds = p + kTile;
    float* product = ds + kTile;
    float* out = dq + i0 * ldq + head * dim;
    const Visible visible(shape, positions, 0, i0, rows);
    for (int64_t j0 = visible.lowest; j0 < visible.highest; j0 += kBlock) {
      const int64_t keys = std::min(kBlock, visible.highest - j0);
      backward_tile(in, visible, head, i0, rows, j0, keys, p, ds, product);
      sgemm(rows, dim, keys, {ds, kBlock, 1}, {k + j0 * ldk + head / group * dim, ldk, 1}, shape.scale, out, ldq,
            j0 > visible.lowest, product);
    }
  });

  // dk, dv: a block of keys over the queries that see it, of all heads that share it.
  parallel_for_worker(blocks * shape.kv_heads, [&](int64_t item, int64_t worker) {
    const int64_t j0 = item / shape.kv_heads * kBlock;
    const int64_t kv_head = item % shape.kv_heads;
    const int64_t keys = std::min(kBlock, t - j0);
    float* p = work + worker * per_worker;
    float* ds = p + kTile;
    float* product = ds + kTile;
    float* dk_out = dk + j0 * ldk + kv_head * dim;
    float* dv_out = dv + j0 * ldk + kv_head * dim;
    bool add = false;
    for (int64_t i0 = j0; i0 < t; i0 += kBlock) {
      const int64_t rows = std::min(kBlock, t - i0);
      const Visible visible(shape, positions, 0, i0, rows);
      if (visible.lowest >= j0 + keys) continue;
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const int64_t at = i0 * ldq + head * dim;
        backward_tile(in, visible, head, i0, rows, j0, keys, p, ds, product);
        sgemm(keys, dim, rows, {p, 1, kBlock}, {dout + at, ldq, 1}, 1.f, dv_out, ldk, add, product);
        sgemm(keys, dim, rows, {ds, 1, kBlock}, {q + at, ldq, 1}, shape.scale, dk_out, ldk, add, product);
        add = true;
      }
    }
  });
}

size_t attention_scratch_bytes(const AttentionShape& shape) {
  ScratchSize size;
  size.take(shape.heads * shape.t);
  size.take(thread_count() * (2 * kTile + product_floats(shape.dim)));
  return size.bytes;
}

}  // namespace mft
