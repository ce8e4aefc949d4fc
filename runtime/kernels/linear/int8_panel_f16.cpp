// Weights in float16 as 8-bit panels: code = round(weight / s) + kWeightOffset with s = largest magnitude / kWeightMax,
// for each column of the panel and block.

#include "runtime/kernels/linear/int8_panel_f16.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/int8_quads.h"
#include "runtime/kernels/linear/int8_values.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

void load_f16_columns(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, Int8Panel out) {
  alignas(64) float rows[kInt8Block][kPanelRows];
  const int64_t group = w.format.group;
  for (int64_t k = k0; k < k0 + kc; k += kInt8Block, out = out.next()) {
    const int64_t count = std::min(kInt8Block, k0 + kc - k);
    Vec most[k16Vecs];
    for (Vec& each : most) each = splat(kSmallest);
    for (int64_t i = 0; i < count; ++i) {
      const Block<Code::kF16> block(block_at<Code::kF16>(w, panel, (k + i) / group));
      Vec values[k16Vecs];
      block.column((k + i) % group, values);
      for (int v = 0; v < k16Vecs; ++v) {
        most[v] = vmax(most[v], magnitude(values[v]));
        store(rows[i] + v * kVec, values[v]);
      }
    }
    for (int v = 0; v < k16Vecs; ++v) {
      const Vec inverse = static_cast<float>(kWeightMax) / most[v];
      store(out.scales + v * kVec, most[v] * (1.f / kWeightMax));
      for (int64_t i = 0; i < count; i += kDepth) {
        VecB bytes[kQuads];
        for (int q = 0; q < kQuads; ++q) {
          Vec values[4];
          for (int j = 0; j < 4; ++j) values[j] = load(rows[i + 4 * q + j] + v * kVec);
          bytes[q] = quad_of_values<kWeightOffset>(values, inverse);
        }
        store_columns(out.codes + i * kTileCols + kDepth * v * kVec, bytes);
      }
    }
  }
}

void load_f16_rows(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, Int8Panel out) {
  const int64_t group = k0 / w.format.group, column = k0 % w.format.group;
  for (int64_t n = n0; n < n0 + nc; n += kInt8Block, out.scales += kTileCols) {
    const int64_t first = n / kPanelRows, panels = ceil_div(std::min(kInt8Block, n0 + nc - n), kPanelRows);
    const auto each = [&](const auto& f) {  // f(panel, column, values of its rows)
      for (int64_t i = 0; i < panels; ++i) {
        const Block<Code::kF16> block(block_at<Code::kF16>(w, first + i, group));
        for (int64_t j = 0; j < kPanelRows; ++j) {
          Vec values[k16Vecs];
          block.column(column + j, values);
          f(i, j, values);
        }
      }
    };
    Vec most[kPanelRows] = {};
    each([&](int64_t, int64_t j, const Vec* values) {
      for (int v = 0; v < k16Vecs; ++v) most[j] = vmax(most[j], magnitude(values[v]));
    });
    float inverse[kPanelRows];
    for (int64_t j = 0; j < kPanelRows; ++j) {
      const float largest = std::max(max_lane(most[j]), kSmallest);
      inverse[j] = static_cast<float>(kWeightMax) / largest;
      out.scales[j] = largest * (1.f / kWeightMax);
    }
    alignas(64) int8_t codes[kPanelRows][kPanelRows];
    each([&](int64_t i, int64_t j, const Vec* values) {
      for (int v = 0; v < k16Vecs; ++v)
        store_i8(codes[j] + v * kVec, round_product(values[v], splat(inverse[j])) + kWeightOffset);
      if (j + 1 < kPanelRows) return;
      for (int v = 0; v < k16Vecs; ++v) {
        VecB quads[4];
        quads_of_rows<false>(reinterpret_cast<const uint8_t*>(codes[v * kVec]), quads);
        for (int q = 0; q < 4; q += kQuads) {
          store_columns(out.codes + (4 * i + q) * 4 * kTileCols + v * kVec * kDepth, quads + q);
        }
      }
    });
    out.codes += panels * kPanelRows * kTileCols;
  }
}

}  // namespace mft::MFT_ISA
