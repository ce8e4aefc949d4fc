#include "runtime/kernels/linear/decode.h"

#include <algorithm>

#include "runtime/kernels/linear/block.h"

namespace mft::MFT_ISA {
namespace {

template <Code F>
void panel_forward(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out, int64_t ld) {
  const int64_t size = w.format.group;
  const int64_t end = k0 + kc;
  for (int64_t k = k0; k < end;) {
    const int64_t group = k / size;
    const int64_t stop = std::min(end, (group + 1) * size);
    const Block<F> block(block_at<F>(w, panel, group));
    for (; k < stop; ++k, out += ld) {
      Vec v[kPanelVecs];
      block.column(k - group * size, v);
      for (int i = 0; i < kPanelVecs; ++i) store(out + i * kVec, v[i]);
    }
  }
}

template <Code F>
void panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out, int64_t ld) {
  const int64_t group = k0 / w.format.group;
  const int64_t column = k0 % w.format.group;
  constexpr int64_t kAhead = Block<F>::kHeader + kPanelRows * Block<F>::kColumnBytes;
  for (int64_t n = 0; n < nc; n += kPanelRows, out += kPanelRows * ld) {
    const Block<F> block(block_at<F>(w, (n0 + n) / kPanelRows, group));
    // The next panel's codes lie behind these, one row of blocks from its neighbours: too far for the processor to see.
    for (int64_t byte = 0; byte < kAhead; byte += 64) {
      __builtin_prefetch(block.codes + (column + kPanelRows) * Block<F>::kColumnBytes + byte);
    }
    for (int k = 0; k < kPanelRows; k += kVec) {
      Vec tile[kPanelVecs][kVec];
      for (int i = 0; i < kVec; ++i) {
        Vec v[kPanelVecs];
        block.column(column + k + i, v);
        for (int r = 0; r < kPanelVecs; ++r) tile[r][i] = v[r];
      }
      for (int r = 0; r < kPanelVecs; ++r) {
        transpose(tile[r]);
        for (int i = 0; i < kVec; ++i) store(out + (r * kVec + i) * ld + k, tile[r][i]);
      }
    }
  }
}

template <Code F>
void row_values(const PackedWeight& w, int64_t row, float* out) {
  const int64_t size = w.format.group;
  for (int64_t group = 0; group < w.cols / size; ++group) {
    const uint8_t* p = block_at<F>(w, row / kPanelRows, group);
    for (int64_t k = 0; k < size; ++k) *out++ = Block<F>::at(p, row % kPanelRows, k);
  }
}

}  // namespace

void decode_panel(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, float* out, int64_t ld) {
  with_code(w.format.code, [&](auto f) { panel_forward<decltype(f)::value>(w, panel, k0, kc, out, ld); });
}

void decode_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, float* out, int64_t ld) {
  with_code(w.format.code, [&](auto f) { panel_transposed<decltype(f)::value>(w, n0, nc, k0, out, ld); });
}

void decode_row(const PackedWeight& w, int64_t row, float* out) {
  with_code(w.format.code, [&](auto f) { row_values<decltype(f)::value>(w, row, out); });
}

}  // namespace mft::MFT_ISA
