#include "runtime/kernels/linear.h"

#include <algorithm>

#include "runtime/kernels/gemm.h"

namespace mft {
namespace {

// Rows handled at once, so that the LoRA intermediates do not grow with the sequence.
constexpr int64_t kRows = 256;

void product(int64_t m, int64_t n, Mat a, Mat b, int64_t k, float alpha, float* c, bool accumulate, Scratch scratch) {
  const DensePanels panels(b);
  const Term term{a, &panels, k, alpha};
  gemm(m, n, &term, 1, c, n, accumulate, scratch);
}

}  // namespace

void linear_forward(const float* x, int64_t m, const PackedWeight& w, const Lora* lora, float* y, Scratch scratch) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  const ForwardPanels weight(w);
  if (lora == nullptr) {
    const Term term{{x, k, 1}, &weight, k, 1.f};
    gemm(m, n, &term, 1, y, n, false, scratch);
    return;
  }
  const int64_t rank = lora->rank;
  float* h = scratch.take(std::min(m, kRows) * rank);
  const DensePanels up({lora->b, 1, rank});
  for (int64_t m0 = 0; m0 < m; m0 += kRows) {
    const int64_t rows = std::min(kRows, m - m0);
    const Mat xs{x + m0 * k, k, 1};
    product(rows, rank, xs, {lora->a, 1, k}, k, 1.f, h, false, scratch);
    // The up-projection is one more stretch of the same sum.
    const Term terms[] = {{xs, &weight, k, 1.f}, {{h, rank, 1}, &up, rank, lora->scale}};
    gemm(rows, n, terms, 2, y + m0 * n, n, false, scratch);
  }
}

void linear_backward(const float* dy, const float* x, int64_t m, const PackedWeight& w, const Lora* lora, float* dx,
                     float* ga, float* gb, Scratch scratch) {
  const int64_t n = w.rows;
  const int64_t k = w.cols;
  const TransposedPanels weight(w);
  if (lora == nullptr) {
    if (dx == nullptr) return;
    const Term term{{dy, n, 1}, &weight, n, 1.f};
    gemm(m, k, &term, 1, dx, k, false, scratch);
    return;
  }
  const int64_t rank = lora->rank;
  float* h = scratch.take(std::min(m, kRows) * rank);
  float* dh = scratch.take(std::min(m, kRows) * rank);
  const DensePanels down({lora->a, k, 1});
  for (int64_t m0 = 0; m0 < m; m0 += kRows) {
    const int64_t rows = std::min(kRows, m - m0);
    const bool add = m0 > 0;
    const Mat xs{x + m0 * k, k, 1};
    const Mat dys{dy + m0 * n, n, 1};
    product(rows, rank, xs, {lora->a, 1, k}, k, 1.f, h, false, scratch);
    product(rows, rank, dys, {lora->b, rank, 1}, n, lora->scale, dh, false, scratch);
    product(rank, k, {dh, 1, rank}, xs, rows, 1.f, ga, add, scratch);
    product(n, rank, {dys.p, 1, n}, {h, rank, 1}, rows, lora->scale, gb, add, scratch);
    if (dx == nullptr) continue;
    const Term terms[] = {{dys, &weight, n, 1.f}, {{dh, rank, 1}, &down, rank, 1.f}};
    gemm(rows, k, terms, 2, dx + m0 * k, k, false, scratch);
  }
}

size_t linear_scratch_bytes(int64_t max_m, int64_t, int64_t, int64_t rank) {
  ScratchSize size;
  size.take(std::min(max_m, kRows) * rank);
  size.take(std::min(max_m, kRows) * rank);
  return size.bytes + gemm_scratch_bytes();
}

}  // namespace mft
