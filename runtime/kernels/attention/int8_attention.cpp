#include "runtime/kernels/attention/int8_attention.h"

#include <algorithm>

#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/attention/channels.h"
#include "runtime/kernels/attention/int8_codes.h"
#include "runtime/kernels/attention/online_softmax.h"
#include "runtime/kernels/attention/score_gradient.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Of what is rounded once: as many heads of keys at a time as fit, since short sequences have few blocks to share out,
// and long ones much to keep.
constexpr int64_t kCodeBytes = int64_t{4} << 20;

int64_t heads_at_once(const AttentionShape& shape, int64_t bytes_of_head) {
  return std::clamp<int64_t>(kCodeBytes / bytes_of_head, 1, shape.kv_heads);
}

size_t channel_count(const AttentionShape& shape) { return static_cast<size_t>(shape.kv_heads * shape.dim); }

int64_t blocks_of(const AttentionShape& shape) { return ceil_div(shape.t, kBlock); }

// What each thread works with.
struct Work {
  float* tile;   // [kBlock, kBlock]: scores, then their exponentials
  float* other;  // likewise: gradients of the scores
  float* sums;   // of a tile of a product
  float* room;   // of encode_left and encode_right

  explicit Work(std::byte* base) {
    tile = reinterpret_cast<float*>(base);
    other = tile + kTile;
    sums = other + kTile;
    room = sums + kTileRows * kTileCols;
  }
  static int64_t bytes(int64_t dim) {
    const int64_t floats = 2 * kTile + kTileRows * kTileCols + room_floats(std::max(kBlock, dim));
    return round_up(floats * int64_t{sizeof(float)}, int64_t{kScratchAlign});
  }
};

// Codes of the keys and values of some heads, and of what each thread multiplies them with.
struct ForwardCodes {
  RightCodes keys, values;  // by head, then block
  LeftCodes queries, exponentials;

  static int64_t bytes_of_head(const AttentionShape& s) {
    return blocks_of(s) * (RightCodes::bytes(s.dim, kBlock) + RightCodes::bytes(kBlock, s.dim));
  }
  ForwardCodes(const AttentionShape& s, int64_t heads, Scratch& scratch)
      : keys(heads * blocks_of(s), s.dim, kBlock, scratch),
        values(heads * blocks_of(s), kBlock, s.dim, scratch),
        queries(thread_count(), s.dim, scratch),
        exponentials(thread_count(), kBlock, scratch) {}
  static void add(const AttentionShape& s, int64_t heads, ScratchSize& size) {
    RightCodes::add(heads * blocks_of(s), s.dim, kBlock, size);
    RightCodes::add(heads * blocks_of(s), kBlock, s.dim, size);
    LeftCodes::add(thread_count(), s.dim, size);
    LeftCodes::add(thread_count(), kBlock, size);
  }
};

// The same of the backward, where queries and their gradients are rounded once, too.
struct BackwardCodes {
  RightCodes keys, key_rows, values;     // by head of keys, then block
  LeftCodes queries, gradients;          // by head of queries, then block
  RightCodes query_rows, gradient_rows;  // likewise
  LeftCodes tiles;                       // of each thread

  static int64_t bytes_of_head(const AttentionShape& s) {
    const int64_t columns = RightCodes::bytes(s.dim, kBlock), rows = RightCodes::bytes(kBlock, s.dim);
    return blocks_of(s) * (2 * columns + rows + s.heads / s.kv_heads * 2 * (LeftCodes::bytes(s.dim) + rows));
  }
  BackwardCodes(const AttentionShape& s, int64_t heads, Scratch& scratch)
      : keys(heads * blocks_of(s), s.dim, kBlock, scratch),
        key_rows(heads * blocks_of(s), kBlock, s.dim, scratch),
        values(heads * blocks_of(s), s.dim, kBlock, scratch),
        queries(heads * group(s) * blocks_of(s), s.dim, scratch),
        gradients(heads * group(s) * blocks_of(s), s.dim, scratch),
        query_rows(heads * group(s) * blocks_of(s), kBlock, s.dim, scratch),
        gradient_rows(heads * group(s) * blocks_of(s), kBlock, s.dim, scratch),
        tiles(thread_count(), kBlock, scratch) {}
  static void add(const AttentionShape& s, int64_t heads, ScratchSize& size) {
    const int64_t count = heads * blocks_of(s), of_queries = count * group(s);
    RightCodes::add(count, s.dim, kBlock, size);
    RightCodes::add(count, kBlock, s.dim, size);
    RightCodes::add(count, s.dim, kBlock, size);
    for (int i = 0; i < 2; ++i) LeftCodes::add(of_queries, s.dim, size);
    for (int i = 0; i < 2; ++i) RightCodes::add(of_queries, kBlock, s.dim, size);
    LeftCodes::add(thread_count(), kBlock, size);
  }

 private:
  static int64_t group(const AttentionShape& s) { return s.heads / s.kv_heads; }
};

// A strip of `out` from rows of floats, kBlock apart, of which the first `keys` count.
void encode_strip(float* rows, int64_t keys, int64_t strip, const Int8Rows& out) {
  Int8Rows tile = out;
  tile.m = std::min(kTileRows, out.m - strip * kTileRows);
  tile.codes += strip * Int8Rows::tile_bytes(out.k);
  tile.scales += out.tile_scales(strip);
  tile.starts += out.tile_scales(strip);
  for (int64_t r = 0; r < tile.m && keys < kBlock; ++r) {
    std::fill(rows + r * kBlock + keys, rows + (r + 1) * kBlock, 0.f);
  }
  quantize_tile(rows, nullptr, tile, 0);
}

}  // namespace

void int8_attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                            const int64_t* positions, float* o, float* lse, Scratch scratch) {
  const int64_t t = shape.t, dim = shape.dim, group = shape.heads / shape.kv_heads, blocks = blocks_of(shape);
  const int64_t ldq = shape.heads * dim, ldk = shape.kv_heads * dim;
  float* q_channels = scratch.take(channel_count(shape));
  float* k_channels = scratch.take(channel_count(shape));
  balance_channels(shape, q, k, q_channels, k_channels);
  const int64_t at_once = heads_at_once(shape, ForwardCodes::bytes_of_head(shape));
  std::byte* work = scratch.take_bytes(static_cast<size_t>(thread_count() * Work::bytes(dim)));
  const ForwardCodes codes(shape, at_once, scratch);
  const auto work_of = [&](int64_t worker) { return Work(work + worker * Work::bytes(dim)); };

  for (int64_t first = 0; first < shape.kv_heads; first += at_once) {
    const int64_t kv_heads = std::min(at_once, shape.kv_heads - first);
    parallel_for_worker(kv_heads * blocks, [&](int64_t item, int64_t worker) {
      const int64_t head = first + item / blocks, j0 = item % blocks * kBlock, keys = std::min(kBlock, t - j0);
      const int64_t at = j0 * ldk + head * dim;
      float* room = work_of(worker).room;
      encode_right({k + at, 1, ldk}, dim, keys, 1.f, k_channels + head * dim, room, codes.keys.at(item));
      encode_right({v + at, ldk, 1}, keys, dim, 1.f, nullptr, room, codes.values.at(item));
    });
    parallel_for_worker(blocks * kv_heads * group, [&](int64_t item, int64_t worker) {
      // Late blocks see most keys: start with them.
      const int64_t i0 = (blocks - 1 - item / (kv_heads * group)) * kBlock;
      const int64_t head = first * group + item % (kv_heads * group), kv_head = head / group;
      const Visible visible(shape, positions, 0, i0);
      const Work mine = work_of(worker);
      const MatrixUnit unit;
      const Int8Rows queries = codes.queries.at(worker, visible.rows);
      const Int8Rows exponentials = codes.exponentials.at(worker, visible.rows);
      float* out = o + i0 * ldq + head * dim;
      encode_left({q + i0 * ldq + head * dim, ldq, 1}, shape.scale, q_channels + kv_head * dim, mine.room, queries);
      OnlineSoftmax softmax(visible.rows, shape.sinks != nullptr ? shape.sinks + head : nullptr);
      const int64_t lowest = visible.lowest / kBlock;
      for (int64_t j = lowest; j * kBlock < visible.highest; ++j) {
        const int64_t keys = std::min(kBlock, visible.highest - j * kBlock), at = (kv_head - first) * blocks + j;
        const Seen seen(visible, j * kBlock, keys);
        for (int64_t strip = 0, r = 0; r < visible.rows; ++strip, r += kTileRows) {
          const int64_t end = std::min(visible.rows, r + kTileRows);
          float* strip_out = out + r * ldq;
          multiply_seen(queries, strip, codes.keys.at(at), seen, mine.sums, mine.tile);
          softmax.add(seen, shape.softcap, r, end, mine.tile, j > lowest ? strip_out : nullptr, ldq, dim);
          encode_strip(mine.tile, keys, strip, exponentials);
          multiply_range(exponentials, strip, codes.values.at(at), seen.of_queries[strip], dim, mine.sums, strip_out,
                         ldq, j > lowest);
        }
      }
      softmax.finish(out, ldq, dim, lse + head * t + i0);
    });
  }
}

// In waves, as in float32: no two items of a wave touch the same gradient, and every sum has one order.
void int8_attention_backward(const AttentionShape& shape, const float* dout, const float* q, const float* k,
                             const float* v, const float* o, const float* lse, const int64_t* positions, float* dq,
                             float* dk, float* dv, Scratch scratch) {
  const int64_t t = shape.t, dim = shape.dim, group = shape.heads / shape.kv_heads, blocks = blocks_of(shape);
  const int64_t ldq = shape.heads * dim, ldk = shape.kv_heads * dim;
  float* of_q = scratch.take(channel_count(shape));
  float* of_k = scratch.take(channel_count(shape));
  float* of_dout = scratch.take(channel_count(shape));
  float* of_v = scratch.take(channel_count(shape));
  balance_channels(shape, q, k, of_q, of_k);
  balance_channels(shape, dout, v, of_dout, of_v);
  float* delta = scratch.take(static_cast<size_t>(shape.heads * t));
  row_products(shape, dout, o, delta);
  const int64_t at_once = heads_at_once(shape, BackwardCodes::bytes_of_head(shape));
  std::byte* work = scratch.take_bytes(static_cast<size_t>(thread_count() * Work::bytes(dim)));
  const BackwardCodes codes(shape, at_once, scratch);
  const auto work_of = [&](int64_t worker) { return Work(work + worker * Work::bytes(dim)); };

  for (int64_t first = 0; first < shape.kv_heads; first += at_once) {
    const int64_t kv_heads = std::min(at_once, shape.kv_heads - first);
    const int64_t first_query = first * group;
    parallel_for_worker(kv_heads * group * blocks, [&](int64_t item, int64_t worker) {
      const int64_t head = first_query + item / blocks, i0 = item % blocks * kBlock, rows = std::min(kBlock, t - i0);
      const int64_t kv_head = head / group, at = i0 * ldq + head * dim, kv_at = i0 * ldk + kv_head * dim;
      float* room = work_of(worker).room;
      encode_left({q + at, ldq, 1}, shape.scale, of_q + kv_head * dim, room, codes.queries.at(item, rows));
      encode_left({dout + at, ldq, 1}, 1.f, of_dout + kv_head * dim, room, codes.gradients.at(item, rows));
      encode_right({q + at, ldq, 1}, rows, dim, shape.scale, nullptr, room, codes.query_rows.at(item));
      encode_right({dout + at, ldq, 1}, rows, dim, 1.f, nullptr, room, codes.gradient_rows.at(item));
      if (head % group > 0) return;
      const int64_t kv_item = (kv_head - first) * blocks + item % blocks;
      encode_right({k + kv_at, 1, ldk}, dim, rows, 1.f, of_k + kv_head * dim, room, codes.keys.at(kv_item));
      encode_right({v + kv_at, 1, ldk}, dim, rows, 1.f, of_v + kv_head * dim, room, codes.values.at(kv_item));
      encode_right({k + kv_at, ldk, 1}, rows, dim, shape.scale, nullptr, room, codes.key_rows.at(kv_item));
    });
    for (int64_t wave = 0; wave < blocks; ++wave) {
      parallel_for_worker((blocks - wave) * kv_heads, [&](int64_t item, int64_t worker) {
        const int64_t j = item / kv_heads, i = j + wave, j0 = j * kBlock, i0 = i * kBlock;
        const int64_t kv_head = first + item % kv_heads, keys = std::min(kBlock, t - j0);
        const Visible visible(shape, positions, 0, i0);
        if (visible.lowest >= j0 + keys) return;
        const Seen seen(visible, j0, keys);
        const Work mine = work_of(worker);
        const MatrixUnit unit;
        const int64_t kv_at = j0 * ldk + kv_head * dim, kv_item = (kv_head - first) * blocks + j;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const int64_t of_head = (head - first_query) * blocks + i;
          // The first wave, on the diagonal, is the first to touch any gradient.
          const bool add = wave > 0 || head > kv_head * group;
          const Int8Rows queries = codes.queries.at(of_head, visible.rows);
          const Int8Rows gradients = codes.gradients.at(of_head, visible.rows);
          Int8Rows tile = codes.tiles.at(worker, visible.rows);
          for (int64_t strip = 0, r = 0; r < visible.rows; ++strip, r += kTileRows) {
            float* p = mine.tile + r * kBlock;
            float* ds = mine.other + r * kBlock;
            multiply_seen(queries, strip, codes.keys.at(kv_item), seen, mine.sums, p);
            multiply_seen(gradients, strip, codes.values.at(kv_item), seen, mine.sums, ds);
            gradient_of_scores(seen, r, std::min(visible.rows, r + kTileRows), lse + head * t + i0,
                               delta + head * t + i0, shape.softcap, p, ds);
            encode_strip(ds, keys, strip, tile);
            multiply_range(tile, strip, codes.key_rows.at(kv_item), seen.of_queries[strip], dim, mine.sums,
                           dq + (i0 + r) * ldq + head * dim, ldq, wave > 0);
          }
          tile = codes.tiles.at(worker, keys);
          tile.k = visible.rows;
          const auto add_columns = [&](const float* scores, const RightCodes& rows, float* gradient) {
            encode_left({scores, 1, kBlock}, 1.f, nullptr, mine.room, tile);
            for (int64_t strip = 0, r = 0; r < keys; ++strip, r += kTileRows) {
              multiply_range(tile, strip, rows.at(of_head), seen.of_keys[strip], dim, mine.sums,
                             gradient + kv_at + r * ldk, ldk, add);
            }
          };
          add_columns(mine.tile, codes.gradient_rows, dv);
          add_columns(mine.other, codes.query_rows, dk);
        }
      });
    }
  }
}

size_t int8_attention_scratch_bytes(const AttentionShape& shape) {
  ScratchSize forward, backward;
  for (int i = 0; i < 2; ++i) forward.take(channel_count(shape));
  for (int i = 0; i < 4; ++i) backward.take(channel_count(shape));
  backward.take(static_cast<size_t>(shape.heads * shape.t));
  for (ScratchSize* size : {&forward, &backward}) {
    size->take_bytes(static_cast<size_t>(thread_count() * Work::bytes(shape.dim)));
  }
  ForwardCodes::add(shape, heads_at_once(shape, ForwardCodes::bytes_of_head(shape)), forward);
  BackwardCodes::add(shape, heads_at_once(shape, BackwardCodes::bytes_of_head(shape)), backward);
  return std::max(forward.bytes, backward.bytes);
}

}  // namespace mft::MFT_ISA
