#include "runtime/kernels/attention/attention.h"

#include <algorithm>

#include "runtime/kernels/attention/attention_few.h"
#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/int8_attention.h"
#include "runtime/kernels/attention/online_softmax.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// A matrix of floats as it lies in memory.
struct Rows {
  const float* data;
  int64_t stride;
};

// Rows [first, first + count) as floats: where they are such, or expanded into `room`.
Rows float_rows(KvFormat format, const KvHead& head, int64_t first, int64_t count, int64_t dim, float* room) {
  if (format == KvFormat::kFloat32) {
    return {reinterpret_cast<const float*>(head.codes + first * head.row_bytes),
            head.row_bytes / int64_t{sizeof(float)}};
  }
  kv_expand(format, head, first, count, dim, room);
  return {room, dim};
}

struct Work {
  float* tile;      // scores, then their exponentials; before and after, keys or values as floats
  float* packed_q;  // [rows, dim]
  float* packed_p;  // [rows, kBlock]
  float* panels;    // of keys or values

  static int64_t tile_floats(int64_t dim) { return kBlock * std::max(kBlock, dim); }
  static int64_t floats(int64_t dim) {
    return tile_floats(dim) + packed_floats(kBlock, dim) + packed_floats(kBlock, kBlock) + panel_floats(kBlock, dim);
  }

  Work(float* base, int64_t dim) {
    tile = base;
    packed_q = tile + tile_floats(dim);
    packed_p = packed_q + packed_floats(kBlock, dim);
    panels = packed_p + packed_floats(kBlock, kBlock);
  }
};

// One head's block of queries against the keys that it sees. q and o point to the block's first row, sink to the head's
// (null: none). log_sum [rows] may be null.
void forward_block(const AttentionShape& shape, const Visible& visible, const float* q, KvFormat format,
                   const KvHead& k, const KvHead& v, const float* sink, float* o, float* log_sum, const Work& work) {
  const int64_t rows = visible.rows;
  const int64_t dim = shape.dim;
  const int64_t ldq = shape.heads * dim;
  OnlineSoftmax softmax(rows, sink);
  pack({q, ldq, 1}, rows, dim, shape.scale, work.packed_q);

  bool add = false;
  for (int64_t j0 = visible.lowest; j0 < visible.highest; j0 += kBlock) {
    const int64_t keys = std::min(kBlock, visible.highest - j0);
    const Seen seen(visible, j0, keys);
    const Rows k_rows = float_rows(format, k, j0, keys, dim, work.tile);
    pack_panels({k_rows.data, 1, k_rows.stride}, dim, keys, work.panels);
    multiply_seen(work.packed_q, dim, work.panels, seen, work.tile);
    softmax.add(seen, shape.softcap, 0, rows, work.tile, add ? o : nullptr, ldq, dim);
    pack({work.tile, kBlock, 1}, rows, keys, 1.f, work.packed_p);
    const Rows v_rows = float_rows(format, v, j0, keys, dim, work.tile);
    pack_panels({v_rows.data, v_rows.stride, 1}, keys, dim, work.panels);
    multiply_ranges(work.packed_p, rows, keys, seen.of_queries, work.panels, dim, o, ldq, add);
    add = true;
  }
  softmax.finish(o, ldq, dim, log_sum);
}

void forward(const AttentionShape& shape, const float* q, const KvCache& keys, const int64_t* positions, int64_t past,
             float* o, float* lse, Scratch scratch) {
  const int64_t blocks = ceil_div(shape.t, kBlock);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t per_worker = Work::floats(shape.dim);
  float* base = scratch.take(thread_count() * per_worker);
  parallel_for_worker(blocks * shape.heads, [&](int64_t item, int64_t worker) {
    // Late blocks see most keys: start with them.
    const int64_t i0 = (blocks - 1 - item / shape.heads) * kBlock;
    const int64_t head = item % shape.heads;
    const int64_t at = (i0 * shape.heads + head) * shape.dim;
    const auto part = [&](const uint8_t* rows) {
      return KvHead(keys.format, rows, shape.kv_heads, shape.dim, head / group);
    };
    forward_block(shape, Visible(shape, positions, past, i0), q + at, keys.format, part(keys.keys), part(keys.values),
                  shape.sinks != nullptr ? shape.sinks + head : nullptr, o + at,
                  lse != nullptr ? lse + head * shape.t + i0 : nullptr, Work(base + worker * per_worker, shape.dim));
  });
}

}  // namespace

void attention_forward(Compute compute, const AttentionShape& shape, const float* q, const float* k, const float* v,
                       const int64_t* positions, float* o, float* lse, Scratch scratch) {
  if (attends_in_int8(compute)) {
    int8_attention_forward(shape, q, k, v, positions, o, lse, scratch);
    return;
  }
  const KvCache keys{reinterpret_cast<const uint8_t*>(k), reinterpret_cast<const uint8_t*>(v), KvFormat::kFloat32};
  forward(shape, q, keys, positions, 0, o, lse, scratch);
}

void attention_decode(const AttentionShape& shape, const float* q, const KvCache& cache, int64_t past, float* o,
                      Scratch scratch) {
  if (shape.t <= kFewQueries) {
    attend_few(shape, q, cache, past, o, scratch);
  } else {
    forward(shape, q, cache, nullptr, past, o, nullptr, scratch);
  }
}

size_t attention_scratch_bytes(Compute compute, const AttentionShape& shape) {
  ScratchSize forward;
  forward.take(thread_count() * Work::floats(shape.dim));
  const size_t both = std::max(forward.bytes, attention_backward_scratch_bytes(shape));
  return std::max(
      {both, attend_few_scratch_bytes(shape), attends_in_int8(compute) ? int8_attention_scratch_bytes(shape) : 0});
}

}  // namespace mft::MFT_ISA
