#include "runtime/kernels/linear/int15_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/kernels/linear/code_bytes.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_quads.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int kTileVecs = kTileCols / kVec;
// Columns of the weight that a panel holds: a multiple of every group, and 8 to 16 KB of bytes.
constexpr int64_t kPanelColumns = 256;

// kTileCols columns of W^T, up to kPanelColumns rows of them: quads of bytes, [kPanelColumns / 4][kTileCols][4], and of
// rests; and by block of at most kInt15Block rows its scales and minima.
struct Panel {
  uint8_t* bytes;
  uint8_t* rests;
  float* scales;
  float* minima;

  static constexpr int64_t kCodes = kPanelColumns * kTileCols, kBlocks = kPanelColumns / (kInt15Block / 2) * kTileCols;
  static constexpr int64_t kBytes = 2 * kCodes + 2 * kBlocks * static_cast<int64_t>(sizeof(float));

  explicit Panel(std::byte* base)
      : bytes(reinterpret_cast<uint8_t*>(base)),
        rests(bytes + kCodes),
        scales(reinterpret_cast<float*>(rests + kCodes)),
        minima(scales + kBlocks) {}
};

// Columns [k0, k0 + kc) of the 16 rows of one stored panel, as columns [j, j + 16) of `out`.
template <Code F>
void load_columns(const PackedWeight& w, int64_t stored, int64_t k0, int64_t kc, int64_t j, Panel out) {
  const int64_t group = w.format.group, columns = std::min(group, kInt15Block);
  out.scales += j, out.minima += j, out.bytes += 4 * j, out.rests += 4 * j;
  for (int64_t k = k0; k < k0 + kc; k += columns, out.scales += kTileCols, out.minima += kTileCols) {
    const Block<F> block(block_at<F>(w, stored, k / group));
    for (int v = 0; v < k16Vecs; ++v) {
      store(out.scales + v * kVec, block.scale[v]);
      if constexpr (Bytes<F>::kHasMin) store(out.minima + v * kVec, Bytes<F>::minimum(block, v));
    }
    const uint8_t* codes = block.codes + k % group * Block<F>::kColumnBytes;
    for (int64_t q = columns / 4; q > 0; --q, codes += 4 * Block<F>::kColumnBytes) {
      VecB quads[k16Vecs];
      quads_of_columns<!Block<F>::kBytes>(codes, quads);
      for (int v = 0; v < k16Vecs; ++v) {
        if constexpr (Bytes<F>::kHasRest) store_wide(out.rests + v * kVecBytes, Bytes<F>::rests_of(quads[v]));
        store_wide(out.bytes + v * kVecBytes, Bytes<F>::of(quads[v]));
      }
      out.bytes += 4 * kTileCols, out.rests += 4 * kTileCols;
    }
  }
}

#if !defined(MFT_PAIR_SUMS)
// Rows of a tile: sums of both parts, and of the rests, stay in 16 registers, or in 32 with AVX-512 and NEON.
template <typename Form>
constexpr int kRowsOf = Form::kHasRest ? (kVec == 16 ? 3 : 2) : (kVec == 16 ? 4 : 3);
static_assert(kInt15RowBlock % kTileRows == 0 && kTileRows % 6 == 0);

// C [R][nr] (+)= rows [row, row + R) of x, columns [k0, k0 + kc), times a panel in blocks of kColumns.
template <typename Form, int64_t kColumns, int R>
void tile_kernel(const Int15Rows& x, int64_t row, int64_t k0, int64_t kc, Panel panel, float* c, int64_t ldc,
                 int64_t nr, bool accumulate) {
  const int64_t padded = Int15Rows::padded(x.k), blocks = Int15Rows::blocks(x.k);
  const int8_t* codes = x.codes + 2 * row * padded + k0;
  const uint8_t* bytes = panel.bytes;
  const uint8_t* rest_bytes = panel.rests;
  Vec y[R][kTileVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kTileVecs; ++v) {
      const int64_t lanes = std::clamp<int64_t>(nr - v * kVec, 0, kVec);
      y[r][v] = accumulate ? load_part(c + r * ldc + v * kVec, lanes) : Vec{};
    }
  }
  for (int64_t k = k0, end = k0 + kc; k < end; k += kColumns) {
    constexpr int kRestRows = Form::kHasRest ? R : 1;
    VecI sums[2 * R][kTileVecs], rests[kRestRows][kTileVecs];
#pragma GCC unroll 12
    for (int r = 0; r < 2 * R; ++r) {
      const int32_t start = -Form::kOffset * x.part_sum(row + r / 2, r % 2, k, kColumns);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVecs; ++v) sums[r][v] = start - VecI{};
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRestRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVecs; ++v) rests[r][v] = VecI{};
    }
    const auto add_quad = [&] {
      VecB column[kTileVecs], rest[kTileVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kTileVecs; ++v) {
        column[v] = load_wide(bytes + v * kVecBytes);
        if constexpr (Form::kHasRest) rest[v] = load_wide(rest_bytes + v * kVecBytes);
      }
#pragma GCC unroll 12
      for (int r = 0; r < 2 * R; ++r) {
        const VecI four = splat_4(codes + r * padded);
#pragma GCC unroll 4
        for (int v = 0; v < kTileVecs; ++v) {
          sums[r][v] = dot_lanes(sums[r][v], column[v], four);
          if constexpr (Form::kHasRest) {
            if (r % 2 == 0) rests[r / 2][v] = dot_lanes(rests[r / 2][v], rest[v], four);
          }
        }
      }
      codes += 4, bytes += 4 * kTileCols, rest_bytes += 4 * kTileCols;
    };
    // Two at a time where the registers suffice.
    for (int64_t q = kColumns / 4; q > 0; q -= Form::kHasRest ? 1 : 2) {
      add_quad();
      if constexpr (!Form::kHasRest) add_quad();
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const float scale = x.scales[(row + r) * blocks + k / kInt15Block];
      int32_t whole = 0;  // the sum of x
      if constexpr (Form::kHasMin) {
        whole = Int15Rows::kSecondPart * x.part_sum(row + r, 0, k, kColumns) + x.part_sum(row + r, 1, k, kColumns);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kTileVecs; ++v) {
        VecI second = sums[2 * r + 1][v];
        if constexpr (Form::kHasRest) second += rests[r][v] * kRestsInSecond<Form>;
        // Exact but for one rounding, as both are whole numbers below 2^24.
        const Vec sum = to_float(sums[2 * r][v]) * static_cast<float>(Int15Rows::kSecondPart) + to_float(second);
        add_block<Form>(sum, whole, scale, load(panel.scales + v * kVec), load(panel.minima + v * kVec), y[r][v]);
      }
    }
    panel.scales += kTileCols, panel.minima += kTileCols;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kTileVecs; ++v) {
      const int64_t lanes = std::clamp<int64_t>(nr - v * kVec, 0, kVec);
      store_part(c + r * ldc + v * kVec, y[r][v], lanes);
    }
  }
}

using TileKernel = void (*)(const Int15Rows&, int64_t, int64_t, int64_t, Panel, float*, int64_t, int64_t, bool);

template <typename Form, int64_t kColumns, int... kRowsLessOne>
constexpr std::array<TileKernel, kRowsOf<Form>> tile_kernels(std::integer_sequence<int, kRowsLessOne...>) {
  return {tile_kernel<Form, kColumns, kRowsLessOne + 1>...};
}

// By rows less one.
template <typename Form>
const std::array<TileKernel, kRowsOf<Form>>& tile_kernels_of(int64_t columns) {
  using Rows = std::make_integer_sequence<int, kRowsOf<Form>>;
  static constexpr auto kWhole = tile_kernels<Form, kInt15Block>(Rows{});
  static constexpr auto kHalf = tile_kernels<Form, kInt15Block / 2>(Rows{});
  return columns == kInt15Block ? kWhole : kHalf;
}

// C [rows, nr] (+)= rows [first, last) of x, columns [k0, k0 + kc), times a panel.
template <typename Form>
void multiply_tiles(const Int15Rows& x, int64_t first, int64_t last, int64_t k0, int64_t kc, int64_t columns,
                    Panel panel, float* c, int64_t ldc, int64_t nr, bool accumulate) {
  const auto& kernels = tile_kernels_of<Form>(columns);
  for (int64_t row = first; row < last; row += kRowsOf<Form>) {
    const int64_t rows = std::min<int64_t>(kRowsOf<Form>, last - row);
    kernels[static_cast<size_t>(rows - 1)](x, row, k0, kc, panel, c + row * ldc, ldc, nr, accumulate);
  }
}
#endif

int64_t work_bytes(int64_t rank) {
  return round_up(Panel::kBytes + rank * kTileCols * static_cast<int64_t>(sizeof(float)),
                  static_cast<int64_t>(kScratchAlign));
}

}  // namespace

bool int15_is_faster(const PackedWeight& w) { return kDotProducts && w.format.code != Code::kF16; }

void int15_gemm(const Int15Rows& x, const PackedWeight& w, const Lora* lora, const float* h, float* y,
                Scratch scratch) {
#if defined(MFT_PAIR_SUMS)
  (void)x, (void)w, (void)lora, (void)h, (void)y, (void)scratch;
#else
  const int64_t k = x.k, n = w.rows, rank = lora != nullptr ? lora->rank : 0;
  float* packed = scratch.take(static_cast<size_t>(packed_floats(x.m, rank)));
  std::byte* work = scratch.take_bytes(static_cast<size_t>(thread_count() * work_bytes(rank)));
  if (lora != nullptr) pack({h, rank, 1}, x.m, rank, lora->scale, packed);
  const int64_t panels = ceil_div(n, kTileCols), tiles = ceil_div(x.m, kTileRows), threads = thread_count();
  // Few columns: split the rows too, and load the panel once for each part.
  const int64_t row_split = panels >= 4 * threads ? 1 : std::min(tiles, ceil_div(4 * threads, panels));
  const int64_t tile_step = ceil_div(tiles, row_split), row_items = ceil_div(tiles, tile_step);
  const int64_t columns = std::min(w.format.group, kInt15Block);
  with_code(w.format.code, [&](auto f) {
    if constexpr (f() != Code::kF16) {
      parallel_for_worker(panels * row_items, [&](int64_t item, int64_t worker) {
        std::byte* mine = work + worker * work_bytes(rank);
        const Panel panel(mine);
        const int64_t n0 = item / row_items * kTileCols, nr = std::min(kTileCols, n - n0);
        const int64_t first = item % row_items * tile_step * kTileRows;
        const int64_t last = std::min(x.m, first + tile_step * kTileRows);
        if (lora != nullptr) {
          float* right = reinterpret_cast<float*>(mine + Panel::kBytes);
          pack_panels({lora->b + n0 * rank, 1, rank}, rank, nr, right);
          multiply_panel(packed + packed_floats(first, rank), last - first, rank, right, kTileCols, y + first * n + n0,
                         n, nr, false);
        }
        for (int64_t k0 = 0; k0 < k; k0 += kPanelColumns) {
          const int64_t kc = std::min(kPanelColumns, k - k0);
          for (int64_t j = 0; j < nr; j += kPanelRows) load_columns<f()>(w, (n0 + j) / kPanelRows, k0, kc, j, panel);
          multiply_tiles<FormOf<f()>>(x, first, last, k0, kc, columns, panel, y + n0, n, nr, k0 > 0 || lora != nullptr);
        }
      });
    }
  });
#endif
}

size_t int15_gemm_scratch_bytes(int64_t rank) {
  ScratchSize size;
  size.take(static_cast<size_t>(packed_floats(kInt15RowBlock, rank)));
  size.take_bytes(static_cast<size_t>(thread_count() * work_bytes(rank)));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
