#include "runtime/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/attention/attention_few.h"
#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/softmax_row.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// y[i] *= factor.
void scale_row(float* y, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

struct Work {
  float* tile;      // scores, then their exponentials
  float* packed_q;  // [rows, dim]
  float* packed_p;  // [rows, kBlock]
  float* panels;    // of keys or values

  static int64_t floats(int64_t dim) {
    return kTile + packed_floats(kBlock, dim) + packed_floats(kBlock, kBlock) + panel_floats(kBlock, dim);
  }

  Work(float* base, int64_t dim) {
    tile = base;
    packed_q = tile + kTile;
    packed_p = packed_q + packed_floats(kBlock, dim);
    panels = packed_p + packed_floats(kBlock, kBlock);
  }
};

// One head's block of queries against the keys it sees. q and o point to the block's first row, sink to the head's
// (null: none). log_sum [rows] may be null.
void forward_block(const AttentionShape& shape, const Visible& visible, const float* q, const KeySpan* spans, int count,
                   const float* sink, float* o, float* log_sum, const Work& work) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t rows = visible.rows;
  const int64_t dim = shape.dim;
  const int64_t ldq = shape.heads * dim;
  const int64_t ldk = shape.kv_heads * dim;
  float maximum[kBlock];
  float total[kBlock];
  std::fill_n(maximum, rows, sink != nullptr ? *sink : kNone);
  std::fill_n(total, rows, sink != nullptr ? 1.f : 0.f);
  pack({q, ldq, 1}, rows, dim, shape.scale, work.packed_q);

  bool add = false;
  for (int s = 0; s < count; ++s) {
    const KeySpan& span = spans[s];
    const int64_t end = std::min(span.end, visible.highest);
    for (int64_t j0 = std::max(span.begin, visible.lowest); j0 < end; j0 += kBlock) {
      const int64_t keys = std::min(kBlock, end - j0);
      const int64_t at = (j0 - span.begin) * ldk;
      const Seen seen(visible, j0, keys);
      pack_panels({span.k + at, 1, ldk}, dim, keys, work.panels);
      multiply_seen(work.packed_q, dim, work.panels, seen, work.tile);
      for (int64_t r = 0; r < rows; ++r) {
        float* row = work.tile + r * kBlock;
        const auto [first, last] = seen.of_row[r];
        std::fill(row, row + first, 0.f);
        std::fill(row + last, row + keys, 0.f);
        if (first == last) continue;
        if (shape.softcap > 0) softcap_row(row + first, last - first, shape.softcap);
        const float high = max_of(row + first, last - first);
        if (high > maximum[r]) {
          if (maximum[r] != kNone) {
            const float factor = std::exp(maximum[r] - high);
            total[r] *= factor;
            if (add) scale_row(o + r * ldq, dim, factor);
          }
          maximum[r] = high;
        }
        total[r] += exp_row(row + first, last - first, maximum[r]);
      }
      pack({work.tile, kBlock, 1}, rows, keys, 1.f, work.packed_p);
      pack_panels({span.v + at, ldk, 1}, keys, dim, work.panels);
      multiply_ranges(work.packed_p, rows, keys, seen.of_queries, work.panels, dim, o, ldq, add);
      add = true;
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    scale_row(o + r * ldq, dim, 1.f / total[r]);
    if (log_sum != nullptr) log_sum[r] = maximum[r] + std::log(total[r]);
  }
}

void forward(const AttentionShape& shape, const float* q, const KeySpan* spans, int count, const int64_t* positions,
             int64_t past, float* o, float* lse, Scratch scratch) {
  const int64_t blocks = ceil_div(shape.t, kBlock);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t per_worker = Work::floats(shape.dim);
  float* base = scratch.take(thread_count() * per_worker);
  parallel_for_worker(blocks * shape.heads, [&](int64_t item, int64_t worker) {
    // Late blocks see most keys: start with them.
    const int64_t i0 = (blocks - 1 - item / shape.heads) * kBlock;
    const int64_t head = item % shape.heads;
    const int64_t at = (i0 * shape.heads + head) * shape.dim;
    const int64_t kv_at = head / group * shape.dim;
    KeySpan mine[2];
    for (int s = 0; s < count; ++s) {
      mine[s] = {spans[s].k + kv_at, spans[s].v + kv_at, spans[s].begin, spans[s].end};
    }
    forward_block(shape, Visible(shape, positions, past, i0), q + at, mine, count,
                  shape.sinks != nullptr ? shape.sinks + head : nullptr, o + at,
                  lse != nullptr ? lse + head * shape.t + i0 : nullptr, Work(base + worker * per_worker, shape.dim));
  });
}

}  // namespace

void attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                       const int64_t* positions, float* o, float* lse, Scratch scratch) {
  const KeySpan span{k, v, 0, shape.t};
  forward(shape, q, &span, 1, positions, 0, o, lse, scratch);
}

void attention_decode(const AttentionShape& shape, const float* q, const float* k, const float* v, const float* k_cache,
                      const float* v_cache, int64_t past_len, float* o, Scratch scratch) {
  const KeySpan spans[] = {{k_cache, v_cache, 0, past_len}, {k, v, past_len, past_len + shape.t}};
  if (shape.t <= kFewQueries) {
    attend_few(shape, q, spans, 2, past_len, o);
  } else {
    forward(shape, q, spans, 2, nullptr, past_len, o, nullptr, scratch);
  }
}

size_t attention_scratch_bytes(const AttentionShape& shape) {
  ScratchSize forward;
  forward.take(thread_count() * Work::floats(shape.dim));
  return std::max(forward.bytes, attention_backward_scratch_bytes(shape));
}

}  // namespace mft::MFT_ISA
