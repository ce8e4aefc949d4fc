#include "runtime/kernels/recurrent/chunk_product.h"

namespace mft::MFT_ISA {

void multiply_packed(int64_t m, int64_t k, int64_t n, float* c, int64_t ldc, bool add, const ProductBuffers& buffers,
                     Part part) {
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    const float* panel = buffers.panels + n0 * k;
    const int64_t nr = std::min(kTileCols, n - n0);
    if (part == Part::kAll || part == Part::kLowerC) {
      const int64_t first = part == Part::kLowerC ? n0 / kTileRows * kTileRows : 0;
      multiply_panel(buffers.packed + packed_floats(first, k), m - first, k, panel, kTileCols, c + first * ldc + n0,
                     ldc, nr, add);
      continue;
    }
    for (int64_t m0 = 0; m0 < m; m0 += kTileRows) {
      const int64_t begin = part == Part::kUpperA ? m0 : 0,
                    end = part == Part::kLowerA ? std::min(k, m0 + kTileRows) : k;
      multiply_panel(buffers.packed + packed_floats(m0, k) + begin * kTileRows, std::min(kTileRows, m - m0),
                     end - begin, panel + begin * kTileCols, kTileCols, c + m0 * ldc + n0, ldc, nr, add);
    }
  }
}

void chunk_product(Mat a, int64_t m, int64_t k, Mat b, int64_t n, float alpha, float* c, int64_t ldc, bool add,
                   const ProductBuffers& buffers, Part part) {
  pack(a, m, k, alpha, buffers.packed);
  pack_panels(b, k, n, buffers.panels);
  multiply_packed(m, k, n, c, ldc, add, buffers, part);
}

}  // namespace mft::MFT_ISA
