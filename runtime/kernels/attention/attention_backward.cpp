#include <algorithm>

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/int8_attention.h"
#include "runtime/kernels/attention/score_gradient.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

struct Work {
  float* p;           // [rows, kBlock]
  float* ds;          // [rows, kBlock]
  float* packed;      // any left-hand factor
  float* panels;      // a right-hand factor of the tile
  float* key_panels;  // keys and values as columns, for all heads that share them
  float* value_panels;

  static int64_t floats(int64_t dim) {
    return 2 * kTile + packed_floats(kBlock, std::max(kBlock, dim)) + panel_floats(kBlock, dim) +
           2 * panel_floats(dim, kBlock);
  }

  Work(float* base, int64_t dim) {
    p = base;
    ds = p + kTile;
    packed = ds + kTile;
    panels = packed + packed_floats(kBlock, std::max(kBlock, dim));
    key_panels = panels + panel_floats(kBlock, dim);
    value_panels = key_panels + panel_floats(dim, kBlock);
  }
};

}  // namespace

void row_products(const AttentionShape& shape, const float* dout, const float* o, float* delta) {
  const int64_t width = shape.heads * shape.dim;
  parallel_ranges(shape.t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t at = i * width + head * shape.dim;
        delta[head * shape.t + i] = row_dot(dout + at, o + at, shape.dim);
      }
    }
  });
}

// The tiles of one block of keys and one of queries add to the gradients of both. Wave w takes block j of keys with
// block j + w of queries: no two items of a wave touch the same gradient, and every sum has one order.
void attention_backward(Compute compute, const AttentionShape& shape, const float* dout, const float* q, const float* k,
                        const float* v, const float* o, const float* lse, const int64_t* positions, float* dq,
                        float* dk, float* dv, Scratch scratch) {
  if (attends_in_int8(compute)) {
    int8_attention_backward(shape, dout, q, k, v, o, lse, positions, dq, dk, dv, scratch);
    return;
  }
  const int64_t t = shape.t;
  const int64_t dim = shape.dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t ldq = shape.heads * dim;
  const int64_t ldk = shape.kv_heads * dim;
  const int64_t blocks = ceil_div(t, kBlock);
  const int64_t per_worker = Work::floats(dim);
  float* delta = scratch.take(shape.heads * t);  // dout_i . o_i
  float* base = scratch.take(thread_count() * per_worker);

  row_products(shape, dout, o, delta);
  for (int64_t wave = 0; wave < blocks; ++wave) {
    parallel_for_worker((blocks - wave) * shape.kv_heads, [&](int64_t item, int64_t worker) {
      const int64_t j0 = item / shape.kv_heads * kBlock;
      const int64_t i0 = j0 + wave * kBlock;
      const int64_t kv_head = item % shape.kv_heads;
      const int64_t keys = std::min(kBlock, t - j0);
      const Visible visible(shape, positions, 0, i0);
      if (visible.lowest >= j0 + keys) return;
      const int64_t rows = visible.rows;
      const Seen seen(visible, j0, keys);
      const Work work(base + worker * per_worker, dim);
      const int64_t kv_at = j0 * ldk + kv_head * dim;
      pack_panels({k + kv_at, 1, ldk}, dim, keys, work.key_panels);
      pack_panels({v + kv_at, 1, ldk}, dim, keys, work.value_panels);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const int64_t at = i0 * ldq + head * dim;
        // The first wave, on the diagonal, is the first to touch any gradient.
        const bool add = wave > 0 || head > kv_head * group;
        pack({q + at, ldq, 1}, rows, dim, shape.scale, work.packed);
        multiply_seen(work.packed, dim, work.key_panels, seen, work.p);
        pack({dout + at, ldq, 1}, rows, dim, 1.f, work.packed);
        multiply_seen(work.packed, dim, work.value_panels, seen, work.ds);
        gradient_of_scores(seen, 0, rows, lse + head * t + i0, delta + head * t + i0, shape.softcap, work.p, work.ds);

        pack({work.p, 1, kBlock}, keys, rows, 1.f, work.packed);
        pack_panels({dout + at, ldq, 1}, rows, dim, work.panels);
        multiply_ranges(work.packed, keys, rows, seen.of_keys, work.panels, dim, dv + kv_at, ldk, add);
        pack({work.ds, 1, kBlock}, keys, rows, shape.scale, work.packed);
        pack_panels({q + at, ldq, 1}, rows, dim, work.panels);
        multiply_ranges(work.packed, keys, rows, seen.of_keys, work.panels, dim, dk + kv_at, ldk, add);
        pack({work.ds, kBlock, 1}, rows, keys, shape.scale, work.packed);
        pack_panels({k + kv_at, ldk, 1}, keys, dim, work.panels);
        multiply_ranges(work.packed, rows, keys, seen.of_queries, work.panels, dim, dq + at, ldq, wave > 0);
      }
    });
  }
}

size_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  ScratchSize size;
  size.take(shape.heads * shape.t);
  size.take(thread_count() * Work::floats(shape.dim));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
