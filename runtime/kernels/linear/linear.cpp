#include "runtime/kernels/linear/linear.h"

#include <algorithm>

#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int15_gemm.h"
#include "runtime/kernels/linear/int8_gemm.h"
#include "runtime/kernels/linear/int8_rows.h"
#include "runtime/kernels/linear/matvec.h"
#include "runtime/kernels/linear/narrow_gemm.h"
#include "runtime/platform/sweep.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Rows handled at once, so that the LoRA intermediates do not grow with the sequence.
constexpr int64_t kRows = kRowBlock;
// Columns one thread takes at a time of a LoRA gradient: some cache lines of each row.
constexpr int64_t kStrip = 64;
// Of a weight without LoRA that is multiplied at once.
constexpr int64_t kPartBytes = int64_t{4} << 20;

// g [rank, n] (+)= scale h^T x, or its transpose [n, rank]: h [m, rank], x [m, n], m at most kRows.
void lora_gradient(const Lora& lora, const float* h, int64_t m, const float* x, int64_t n, bool transposed, float* g,
                   bool accumulate, Scratch scratch) {
  const int64_t rank = lora.rank;
  float* packed = scratch.take(packed_floats(rank, kRows));
  float* buffers = scratch.take(thread_count() * kRows * kTileCols);
  float* tiles = scratch.take(thread_count() * rank * kTileCols);
  pack({h, 1, rank}, rank, m, lora.scale, packed);
  parallel_for_worker(ceil_div(n, kStrip), [&](int64_t item, int64_t worker) {
    const int64_t end = std::min(n, (item + 1) * kStrip);
    for (int64_t n0 = item * kStrip; n0 < end; n0 += kTileCols) {
      const int64_t nr = std::min(kTileCols, n - n0);
      // Rows of x lie far apart, and each tile of the rank reads them again: once is enough.
      float* panel = buffers + worker * kRows * kTileCols;
      pack_panels({x + n0, n, 1}, m, nr, panel);
      if (!transposed) {
        multiply_panel(packed, rank, m, panel, kTileCols, g + n0, n, nr, accumulate);
        continue;
      }
      float* tile = tiles + worker * rank * kTileCols;
      multiply_panel(packed, rank, m, panel, kTileCols, tile, kTileCols, kTileCols, false);
      for (int64_t j = 0; j < nr; ++j) {
        float* out = g + (n0 + j) * rank;
        for (int64_t i = 0; i < rank; ++i) out[i] = (accumulate ? out[i] : 0.f) + tile[i * kTileCols + j];
      }
    }
  });
}

size_t lora_gradient_scratch_bytes(int64_t rank) {
  ScratchSize size;
  size.take(packed_floats(rank, kRows));
  size.take(thread_count() * kRows * kTileCols);
  size.take(thread_count() * rank * kTileCols);
  return size.bytes;
}

// Part by part of the weight, so that the pages of a head, which may be larger than all else, can be dropped.
void plain_forward(const float* x, int64_t m, const PackedWeight& w, float* y, Scratch scratch) {
  const int64_t panel_bytes = w.cols / w.format.group * static_cast<int64_t>(w.format.block_bytes());
  const int64_t part = round_up(ceil_div(kPartBytes, panel_bytes), thread_count()) * kPanelRows;
  for (int64_t n0 = 0; n0 < w.rows; n0 += part) {
    PackedWeight rows = w;
    rows.data = w.data + n0 / kPanelRows * panel_bytes;
    rows.rows = std::min(part, w.rows - n0);
    gemm(m, rows.rows, w.cols, {x, w.cols, 1}, ForwardPanels(rows), nullptr, y + n0, w.rows, scratch);
    if (w.read_once) drop_pages(rows.data, rows.data + ceil_div(rows.rows, kPanelRows) * panel_bytes);
  }
}

// x [m, k] as the integer product takes it, m at most kRows.
struct Int8Input {
  Int8Rows codes;
  int64_t* outliers;  // [kOutliers]
  float* largest;     // [k], for finding them

  Int8Input(int64_t m, int64_t k, Scratch& scratch)
      : codes(take_int8_rows(m, k, scratch)),
        outliers(reinterpret_cast<int64_t*>(scratch.take_bytes(kOutliers * sizeof(int64_t)))),
        largest(scratch.take(static_cast<size_t>(k))) {}

  static void add(int64_t m, int64_t k, ScratchSize& size) {
    add_int8_rows(m, k, size);
    size.take_bytes(kOutliers * sizeof(int64_t));
    size.take(static_cast<size_t>(k));
  }

  void encode(const float* x) {
    find_outliers(x, codes.m, codes.k, largest, outliers);
    quantize_rows(x, outliers, codes);
  }
};

// Of a few rows.
void matvec_forward(const float* x, int64_t m, const PackedWeight& w, const Lora* lora, bool same_x, float* y,
                    Scratch scratch) {
  Int15Rows input(x, m, w.cols, scratch);
  float* h = scratch.take(m * (lora != nullptr ? lora->rank : 0));
  if (!same_x) input.encode();
  if (lora != nullptr) matvec_low_rank(input, *lora, h);
  matvec(input, w, lora, h, y);
}

void int15_forward(const float* x, int64_t m, const PackedWeight& w, const Lora* lora, bool same_x, float* y,
                   Scratch scratch) {
  const int64_t n = w.rows, k = w.cols, rank = lora != nullptr ? lora->rank : 0;
  const int64_t most = std::min(m, kInt15RowBlock);
  Int15Rows input(x, most, k, scratch);
  float* h = scratch.take(most * rank);
  for (int64_t m0 = 0; m0 < m; m0 += most) {
    input.x = x + m0 * k;
    input.m = std::min(most, m - m0);
    if (!same_x || m > most) input.encode();
    if (lora != nullptr) narrow_gemm(input.m, rank, k, input.x, {lora->a, 1, k}, h, scratch);
    int15_gemm(input, w, lora, h, y + m0 * n, scratch);
  }
}

// The LoRA branch stays in float32: in 8 bits its gradients lose more than all the rest does.
void int8_forward(const float* x, int64_t m, const PackedWeight& w, const Lora* lora, bool same_x, float* y,
                  Scratch scratch) {
  const int64_t n = w.rows, k = w.cols, rank = lora != nullptr ? lora->rank : 0;
  Int8Input input(std::min(m, kRows), k, scratch);
  float* h = scratch.take(std::min(m, kRows) * rank);
  for (int64_t m0 = 0; m0 < m; m0 += kRows) {
    const int64_t rows = std::min(kRows, m - m0);
    const float* xs = x + m0 * k;
    Summand branch{};
    if (lora != nullptr) {
      narrow_gemm(rows, rank, k, xs, {lora->a, 1, k}, h, scratch);
      branch = {{h, rank, 1}, {lora->b, 1, rank}, rank, lora->scale};
    }
    input.codes.m = rows;
    if (!same_x || m > kRows) input.encode(xs);
    Outliers outliers{xs, w, {}};
    std::copy(input.outliers, input.outliers + kOutliers, outliers.columns);
    int8_gemm(input.codes, n, Int8Forward(w), &outliers, lora != nullptr ? &branch : nullptr, y + m0 * n, n, scratch);
  }
}

// dx [m, K] = dy W + the summand, if any; m at most kRows.
void int8_gradient(const float* dy, int64_t m, const PackedWeight& w, const Summand* summand, float* dx,
                   Scratch scratch) {
  const Int8Rows codes = take_int8_rows(m, w.rows, scratch);
  quantize_rows(dy, nullptr, codes);
  int8_gemm(codes, w.cols, Int8Transposed(w), nullptr, summand, dx, w.cols, scratch);
}

}  // namespace

bool linear_forward(Compute compute, const float* x, int64_t m, const PackedWeight& w, const Lora* lora, bool same_x,
                    float* y, Scratch scratch) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  if (compute != Compute::kFloat32 && m <= kMatvecRows) {
    matvec_forward(x, m, w, lora, same_x, y, scratch);
    return true;
  }
  if (compute == Compute::kInt15 && int15_is_faster(w)) {
    int15_forward(x, m, w, lora, same_x, y, scratch);
    return true;
  }
  if (compute == Compute::kInt8) {
    int8_forward(x, m, w, lora, same_x, y, scratch);
    return true;
  }
  if (lora == nullptr) {
    plain_forward(x, m, w, y, scratch);
    return false;
  }
  const ForwardPanels weight(w);
  const int64_t rank = lora->rank;
  float* h = scratch.take(std::min(m, kRows) * rank);
  const LowRank branch{{lora->a, 1, k}, {lora->b, 1, rank}, rank, lora->scale, h};
  for (int64_t m0 = 0; m0 < m; m0 += kRows) {
    gemm(std::min(kRows, m - m0), n, k, {x + m0 * k, k, 1}, weight, &branch, y + m0 * n, n, scratch);
  }
  return false;
}

void linear_backward(Compute compute, const float* dy, const float* x, int64_t m, const PackedWeight& w,
                     const Lora* lora, float* dx, float* ga, float* gb, Scratch scratch) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  const TransposedPanels weight(w);
  if (lora == nullptr) {
    if (dx != nullptr && compute == Compute::kInt8) {
      for (int64_t m0 = 0; m0 < m; m0 += kRows) {
        int8_gradient(dy + m0 * n, std::min(kRows, m - m0), w, nullptr, dx + m0 * k, scratch);
      }
    } else if (dx != nullptr) {
      gemm(m, k, n, {dy, n, 1}, weight, nullptr, dx, k, scratch);
    }
    return;
  }
  const int64_t rank = lora->rank;
  float* h = scratch.take(std::min(m, kRows) * rank);   // x A^T
  float* dh = scratch.take(std::min(m, kRows) * rank);  // dy B
  const Mat up{lora->b, rank, 1};
  const LowRank branch{up, {lora->a, k, 1}, rank, lora->scale, dh};
  for (int64_t m0 = 0; m0 < m; m0 += kRows) {
    const int64_t rows = std::min(kRows, m - m0);
    const Mat xs{x + m0 * k, k, 1};
    const Mat dys{dy + m0 * n, n, 1};
    if (dx != nullptr && compute == Compute::kFloat32) {
      gemm(rows, k, n, dys, weight, &branch, dx + m0 * k, k, scratch);
    } else {
      narrow_gemm(rows, rank, n, dys.p, up, dh, scratch);
    }
    if (dx != nullptr && compute == Compute::kInt8) {
      const Summand summand{{dh, rank, 1}, {lora->a, k, 1}, rank, lora->scale};
      int8_gradient(dys.p, rows, w, &summand, dx + m0 * k, scratch);
    }
    narrow_gemm(rows, rank, k, xs.p, {lora->a, 1, k}, h, scratch);
    if (ga != nullptr) lora_gradient(*lora, dh, rows, xs.p, k, false, ga, m0 > 0, scratch);
    lora_gradient(*lora, h, rows, dys.p, n, true, gb, m0 > 0, scratch);
  }
}

size_t linear_scratch_bytes(Compute compute, int64_t max_m, int64_t rows, int64_t cols, int64_t rank) {
  ScratchSize size;
  size.take(std::min(max_m, kRows) * rank);
  size.take(std::min(max_m, kRows) * rank);
  const size_t lora =
      std::max(lora_gradient_scratch_bytes(rank), narrow_gemm_scratch_bytes(rank, std::max(rows, cols)));
  if (compute == Compute::kFloat32) return size.bytes + std::max(gemm_scratch_bytes(), lora);
  ScratchSize int15, int8;
  Int15Rows::add(std::min(max_m, std::max(kMatvecRows, kInt15RowBlock)), cols, int15);
  const size_t narrow = narrow_gemm_scratch_bytes(rank, cols);
  int15.take_bytes(std::max(int15_gemm_scratch_bytes(rank), narrow));
  if (compute == Compute::kInt15) return size.bytes + std::max(gemm_scratch_bytes(), int15.bytes);
  Int8Input::add(std::min(max_m, kRows), std::max(rows, cols), int8);
  int8.take_bytes(std::max(int8_gemm_scratch_bytes(rank), narrow));
  return size.bytes + std::max({lora, int15.bytes, int8.bytes});
}

}  // namespace mft::MFT_ISA
