#include "runtime/kernels/linear/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/kernels/linear/decode.h"
#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int kTileVecs = kTileCols / kVec;
// Keeps A within a core's L2.
constexpr int64_t kPackedFloats = packed_floats(kRowBlock, kChunk) * 4;

// C [R, nr] (+)= A B for one packed tile of which R rows count, and V vectors of each row of B.
template <int R, int V>
void tile_kernel(int64_t k, const float* __restrict a, const float* __restrict b, int64_t ldb, float* __restrict c,
                 int64_t ldc, int64_t nr, bool accumulate) {
  // Few sums leave the multiply-add's latency exposed: let them be of several stretches of k.
  constexpr int kSums = R * V <= 2 ? 4 : R * V <= 4 ? 2 : 1;
  Vec sums[kSums][R][V];
#pragma GCC unroll 4
  for (int s = 0; s < kSums; ++s) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[s][r][v] = Vec{};
    }
  }
  const auto step = [&](int64_t i, Vec(&acc)[R][V]) {
    Vec row[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) row[v] = load(b + i * ldb + v * kVec);
    const float* xs = a + i * kTileRows;
    // NEON multiplies by a lane; six broadcasts would not fit beside the 24 sums.
    const Vec low = load(xs);
    const Vec high = load(xs + (kVec > 4 ? 0 : 2));
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vec x = splat(kVec > 4 ? xs[r] : r < 4 ? low[r] : high[r - 2]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] += x * row[v];
    }
  };
  int64_t i = 0;
  for (; i + kSums <= k; i += kSums) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) step(i + s, sums[s]);
  }
  for (; i < k; ++i) step(i, sums[0]);
  Vec(&acc)[R][V] = sums[0];
#pragma GCC unroll 4
  for (int s = 1; s < kSums; ++s) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] += sums[s][r][v];
    }
  }
  if (nr == V * kVec) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        float* p = c + r * ldc + v * kVec;
        store(p, accumulate ? load(p) + acc[r][v] : acc[r][v]);
      }
    }
    return;
  }
  float tile[R][V * kVec];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(tile[r] + v * kVec, acc[r][v]);
  }
  for (int r = 0; r < R; ++r) {
    for (int64_t j = 0; j < nr; ++j) {
      float* p = c + r * ldc + j;
      *p = accumulate ? *p + tile[r][j] : tile[r][j];
    }
  }
}

using TileKernel = void (*)(int64_t, const float*, const float*, int64_t, float*, int64_t, int64_t, bool);

template <int V, int... kRowsLessOne>
constexpr std::array<TileKernel, kTileRows> tile_kernels(std::integer_sequence<int, kRowsLessOne...>) {
  return {tile_kernel<kRowsLessOne + 1, V>...};
}
using Rows = std::make_integer_sequence<int, kTileRows>;
// By vectors less one, of which one is half a tile or less, and rows less one.
constexpr std::array<TileKernel, kTileRows> kTileKernels[] = {tile_kernels<kTileVecs / 2>(Rows{}),
                                                              tile_kernels<kTileVecs>(Rows{})};

// out[i][j] = src[j * stride + i], i in [0, k), j in [0, kTileCols); columns from nr on are zero.
void transpose_panel(const float* src, int64_t stride, int64_t nr, int64_t k, float* out) {
  for (int64_t j = 0; j < kTileCols; j += kVec) {
    int64_t i = 0;
    for (; i + kVec <= k; i += kVec) {
      Vec tile[kVec];
      for (int r = 0; r < kVec; ++r) {
        tile[r] = j + r < nr ? load(src + (j + r) * stride + i) : Vec{};
      }
      transpose(tile);
      for (int r = 0; r < kVec; ++r) store(out + (i + r) * kTileCols + j, tile[r]);
    }
    for (; i < k; ++i) {
      for (int r = 0; r < kVec; ++r) {
        out[i * kTileCols + j + r] = j + r < nr ? src[(j + r) * stride + i] : 0.f;
      }
    }
  }
}

// out[i][j] = b(i, j), i in [0, k), j in [0, kTileCols); columns from nr on are zero.
void pack_panel(Mat b, int64_t nr, int64_t k, float* out) {
  if (b.row == 1) {
    transpose_panel(b.p, b.col, nr, k, out);
  } else if (b.col == 1 && nr == kTileCols) {
    for (int64_t i = 0; i < k; ++i) {
      // Rows may lie so far apart that no prefetcher of the CPU's follows.
      for (int64_t j = 0; j < kTileCols; j += 16) __builtin_prefetch(b.p + (i + 16) * b.row + j);
      for (int64_t j = 0; j < kTileCols; j += kVec) store(out + i * kTileCols + j, load(b.p + i * b.row + j));
    }
  } else {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < kTileCols; ++j) {
        out[i * kTileCols + j] = j < nr ? b.p[i * b.row + j * b.col] : 0.f;
      }
    }
  }
}

// Packs the tile of rows [first, first + kTileRows) of a [m, *], columns [k0, k0 + k).
void pack_tile_of(Mat a, int64_t first, int64_t m, int64_t k0, int64_t k, float alpha, float* out) {
  const float* rows[kTileRows];
  for (int64_t r = 0; r < kTileRows; ++r) {
    rows[r] = first + r < m ? a.p + (first + r) * a.row + k0 * a.col : nullptr;
  }
  pack_tile(rows, a.col, k, alpha, out);
}

// out[k][r] = alpha * src[k * col + r] for r < R, else anything.
template <int R>
void pack_adjacent(const float* src, int64_t col, int64_t k, float alpha, float* out) {
  const float* end = src + (k - 1) * col + R;
  for (int64_t i = 0; i < k; ++i, src += col, out += kTileRows) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r += kVec) {
      // Whole vectors while the memory lasts; what is stored too much, the next store overwrites.
      const bool whole = end - src >= r + kVec;
      store(out + r, (whole ? load(src + r) : load_part(src + r, std::min(kVec, R - r))) * alpha);
    }
  }
}

using PackAdjacent = void (*)(const float*, int64_t, int64_t, float, float*);

template <int... kRowsLessOne>
constexpr std::array<PackAdjacent, kTileRows> pack_adjacents(std::integer_sequence<int, kRowsLessOne...>) {
  return {pack_adjacent<kRowsLessOne + 1>...};
}
constexpr std::array<PackAdjacent, kTileRows> kPackAdjacent = pack_adjacents(Rows{});

// A stretch of the sum over k and then the rank: kc of A and B at k0, rc of A U and V at r0.
struct Chunk {
  int64_t k0;
  int64_t kc;
  int64_t r0;
  int64_t rc;

  Chunk(int64_t begin, int64_t end, int64_t k) {
    k0 = std::min(begin, k);
    kc = std::min(end, k) - k0;
    r0 = std::max(begin, k) - k;
    rc = std::max(end, k) - k - r0;
  }
  int64_t size() const { return kc + rc; }
};

// Packs the tiles [begin, end) of a [m, *] to out and adds their part of A U; where the chunk reaches into the rank,
// A U is complete and is packed behind A.
void pack_chunk(const Chunk& chunk, int64_t begin, int64_t end, int64_t m, Mat a, const LowRank* summand, float* buffer,
                float* out) {
  const int64_t stride = packed_floats(kTileRows, chunk.size());
  for (int64_t t = begin; t < end && chunk.kc > 0; ++t) {
    pack_tile_of(a, t * kTileRows, m, chunk.k0, chunk.kc, 1.f, out + (t - begin) * stride);
  }
  if (summand == nullptr) return;
  const int64_t rank = summand->rank;
  const DensePanels u(summand->u);
  for (int64_t r0 = 0; r0 < rank && chunk.kc > 0; r0 += kTileCols) {
    const int64_t nr = std::min(kTileCols, rank - r0);
    int64_t ldb;
    const float* panel = u.load(r0, nr, chunk.k0, chunk.kc, buffer, &ldb);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t * kTileRows;
      multiply_panel(out + (t - begin) * stride, std::min(kTileRows, m - row), chunk.kc, panel, ldb,
                     summand->au + row * rank + r0, rank, nr, chunk.k0 > 0);
    }
  }
  for (int64_t t = begin; t < end && chunk.rc > 0; ++t) {
    pack_tile_of({summand->au, rank, 1}, t * kTileRows, m, chunk.r0, chunk.rc, summand->alpha,
                 out + (t - begin) * stride + chunk.kc * kTileRows);
  }
}

// The chunk's panel of B, and V behind it.
const float* load_chunk(const Chunk& chunk, int64_t n0, int64_t nr, const PanelSource& b, const LowRank* summand,
                        float* buffer, int64_t* ldb) {
  *ldb = kTileCols;
  const float* panel = buffer;
  if (chunk.kc > 0) panel = b.load(n0, nr, chunk.k0, chunk.kc, buffer, ldb);
  if (chunk.rc == 0) return panel;
  if (panel != buffer) pack_panel({panel, *ldb, 1}, kTileCols, chunk.kc, buffer);
  const Mat& v = summand->v;
  pack_panel({v.p + chunk.r0 * v.row + n0 * v.col, v.row, v.col}, nr, chunk.rc, buffer + chunk.kc * kTileCols);
  *ldb = kTileCols;
  return buffer;
}

}  // namespace

void pack_tile(const float* const rows[kTileRows], int64_t col, int64_t k, float alpha, float* out) {
  int64_t i = 0;
  if (col == 1) {
    for (; i + kVec <= k; i += kVec) {
      // Of as many rows as transpose together the last ones are zero, and overwritten by the next store.
      constexpr int kAll = kTileRows + kPackSlack;
      Vec tile[kAll];
      for (int r = 0; r < kAll; ++r) {
        tile[r] = r < kTileRows && rows[r] != nullptr ? load(rows[r] + i) * alpha : Vec{};
      }
      for (int part = 0; part < kAll; part += kVec) transpose(tile + part);
      for (int j = 0; j < kVec; ++j) {
        for (int part = 0; part < kAll; part += kVec) {
          store(out + (i + j) * kTileRows + part, tile[part + j]);
        }
      }
    }
  } else {
    int64_t adjacent = 0;
    while (adjacent < kTileRows && rows[adjacent] == rows[0] + adjacent) ++adjacent;
    if (adjacent == kTileRows || rows[adjacent] == nullptr) {
      kPackAdjacent[static_cast<size_t>(adjacent - 1)](rows[0], col, k, alpha, out);
      return;
    }
  }
  for (; i < k; ++i) {
    for (int r = 0; r < kTileRows; ++r) {
      out[i * kTileRows + r] = rows[r] != nullptr ? rows[r][i * col] * alpha : 0.f;
    }
  }
}

void pack(Mat a, int64_t m, int64_t k, float alpha, float* out) {
  for (int64_t first = 0; first < m; first += kTileRows) {
    pack_tile_of(a, first, m, 0, k, alpha, out);
    out += packed_floats(kTileRows, k);
  }
}

void multiply_panel(const float* packed, int64_t m, int64_t k, const float* b, int64_t ldb, float* c, int64_t ldc,
                    int64_t nr, bool accumulate) {
  const auto& kernels = kTileKernels[2 * nr > kTileCols];
  for (int64_t first = 0; first < m; first += kTileRows) {
    const int64_t rows = std::min(kTileRows, m - first);
    kernels[static_cast<size_t>(rows - 1)](k, packed, b, ldb, c + first * ldc, ldc, nr, accumulate);
    packed += packed_floats(kTileRows, k);
  }
}

void load_panel(const PackedWeight& w, int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* out) {
  for (int64_t j = 0; j < nr; j += kPanelRows) decode_panel(w, (n0 + j) / kPanelRows, k0, kc, out + j, kTileCols);
}

void load_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, int64_t kr, float* out) {
  for (int64_t j = 0; j < kr; j += kPanelRows) decode_panel_transposed(w, n0, nc, k0 + j, out + j, kTileCols);
}

void pack_panels(Mat b, int64_t k, int64_t n, float* out) {
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols, out += k * kTileCols) {
    pack_panel({b.p + n0 * b.col, b.row, b.col}, std::min(kTileCols, n - n0), k, out);
  }
}

const float* ForwardPanels::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const {
  *ldb = kTileCols;
  load_panel(w_, n0, nr, k0, kc, buffer);
  return buffer;
}

const float* TransposedPanels::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const {
  *ldb = kTileCols;
  load_panel_transposed(w_, k0, kc, n0, nr, buffer);
  return buffer;
}

const float* DensePanels::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const {
  const Mat part{b_.p + k0 * b_.row + n0 * b_.col, b_.row, b_.col};
  if (part.col == 1 && nr == kTileCols) {
    *ldb = part.row;
    return part.p;
  }
  *ldb = kTileCols;
  pack_panel(part, nr, kc, buffer);
  return buffer;
}

void gemm(int64_t m, int64_t n, int64_t k, Mat a, const PanelSource& b, const LowRank* summand, float* c, int64_t ldc,
          Scratch scratch) {
  const int64_t threads = thread_count();
  float* packed = scratch.take(kPackedFloats);
  float* buffers = scratch.take(threads * kChunk * kTileCols);
  // Split k and the rank evenly into chunks, and those into groups whose packed A fits.
  const int64_t total = k + (summand != nullptr ? summand->rank : 0);
  const int64_t size = round_up(ceil_div(total, ceil_div(total, kChunk)), kTileCols);
  const int64_t chunks = ceil_div(total, size);
  const int64_t fit = kPackedFloats / packed_floats(std::min(m, kRowBlock), size);
  const int64_t group = ceil_div(chunks, ceil_div(chunks, fit));

  const int64_t panels = ceil_div(n, kTileCols);
  const int64_t panel_step = ceil_div(panels, 16 * threads);
  const int64_t column_items = ceil_div(panels, panel_step);

  for (int64_t m0 = 0; m0 < m; m0 += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, m - m0);
    const int64_t tiles = ceil_div(rows, kTileRows);
    // Few columns: split the rows too, and load the panel once for each part.
    const int64_t row_split = panels >= 2 * threads ? 1 : std::min(tiles, ceil_div(2 * threads, panels));
    const int64_t tile_step = ceil_div(tiles, row_split);
    const int64_t row_items = ceil_div(tiles, tile_step);
    const int64_t pack_step = ceil_div(tiles, 4 * threads);
    const int64_t stride = packed_floats(rows, size);
    const Mat some{a.p + m0 * a.row, a.row, a.col};

    for (int64_t first = 0; first < chunks; first += group) {
      const int64_t last = std::min(chunks, first + group);
      const auto chunk_at = [&](int64_t i) { return Chunk(i * size, std::min(total, (i + 1) * size), k); };
      parallel_for_worker(ceil_div(tiles, pack_step), [&](int64_t item, int64_t worker) {
        const int64_t begin = item * pack_step;
        for (int64_t i = first; i < last; ++i) {
          const Chunk chunk = chunk_at(i);
          pack_chunk(chunk, begin, std::min(tiles, begin + pack_step), rows, some, summand,
                     buffers + worker * kChunk * kTileCols,
                     packed + (i - first) * stride + packed_floats(begin * kTileRows, chunk.size()));
        }
      });
      parallel_for_worker(column_items * row_items, [&](int64_t item, int64_t worker) {
        float* buffer = buffers + worker * kChunk * kTileCols;
        const int64_t first_tile = item % row_items * tile_step;
        const int64_t first_row = first_tile * kTileRows;
        const int64_t some_rows = std::min(rows - first_row, tile_step * kTileRows);
        const int64_t first_panel = item / row_items * panel_step;
        const int64_t last_panel = std::min(panels, first_panel + panel_step);
        for (int64_t panel = first_panel; panel < last_panel; ++panel) {
          const int64_t n0 = panel * kTileCols;
          const int64_t nr = std::min(kTileCols, n - n0);
          float* out = c + (m0 + first_row) * ldc + n0;
          for (int64_t i = first; i < last; ++i) {
            const Chunk chunk = chunk_at(i);
            int64_t ldb;
            const float* columns = load_chunk(chunk, n0, nr, b, summand, buffer, &ldb);
            multiply_panel(packed + (i - first) * stride + first_tile * packed_floats(kTileRows, chunk.size()),
                           some_rows, chunk.size(), columns, ldb, out, ldc, nr, i > 0);
          }
        }
      });
    }
  }
}

size_t gemm_scratch_bytes() {
  ScratchSize size;
  size.take(kPackedFloats);
  size.take(thread_count() * kChunk * kTileCols);
  return size.bytes;
}

}  // namespace mft::MFT_ISA
