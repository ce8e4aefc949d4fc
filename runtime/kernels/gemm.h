#pragma once

// float32 matrix products from one 6 x 16 register tile. Weights are decoded a panel of 16 columns
// at a time into L1 and used for all rows while they are there.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/quant.h"
#include "runtime/kernels/scratch.h"

namespace mft {

constexpr int64_t kTileRows = 6;
constexpr int64_t kTileCols = kPanelRows;
// Longest run of k a panel holds: 320 x 16 floats are 20 KB.
constexpr int64_t kChunk = 320;
// Rows of C that a packed A covers at once.
constexpr int64_t kRowBlock = 256;

// A strided matrix: element (i, j) is p[i * row + j * col].
struct Mat {
  const float* p;
  int64_t row;
  int64_t col;
};

// --- Building blocks ---------------------------------------------------------------------------

// Floats of m rows packed for the tile kernel: tiles of 6 rows, each [k][6] and 2 floats of slack.
constexpr int64_t packed_floats(int64_t m, int64_t k) { return (m + kTileRows - 1) / kTileRows * (kTileRows * k + 2); }

// Packs one tile: out[k][r] = alpha * rows[r][k * col]; a null row packs as zeros.
void pack_tile(const float* const rows[kTileRows], int64_t col, int64_t k, float alpha, float* out);

// Packs a [m, k], times alpha.
void pack(Mat a, int64_t m, int64_t k, float alpha, float* out);

// Packs B [k, n] as its panels, one after the other: each is k rows of 16 floats, zero past column n.
constexpr int64_t panel_floats(int64_t k, int64_t n) { return (n + kTileCols - 1) / kTileCols * kTileCols * k; }
void pack_panels(Mat b, int64_t k, int64_t n, float* out);

// C [m, nr] (+)= A B for packed A [m, k] and a panel B of k rows of 16 floats, ldb apart; nr <= 16.
void multiply_panel(const float* packed, int64_t m, int64_t k, const float* b, int64_t ldb, float* c, int64_t ldc,
                    int64_t nr, bool accumulate);

// --- All threads -------------------------------------------------------------------------------

// Where the right-hand factor B [k, n] of a product comes from.
class PanelSource {
 public:
  // Rows [k0, k0 + kc) of the nr columns at n0, as rows of 16 floats *ldb apart, either in place
  // or written to buffer [kChunk][16]. n0 and k0 are multiples of 16, kc <= kChunk.
  virtual const float* load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const = 0;

 protected:
  ~PanelSource() = default;
};

// B = W^T, [K, N].
class ForwardPanels final : public PanelSource {
 public:
  explicit ForwardPanels(const PackedWeight& w) : w_(w) {}
  const float* load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const override;

 private:
  const PackedWeight& w_;
};

// B = W, [N, K].
class TransposedPanels final : public PanelSource {
 public:
  explicit TransposedPanels(const PackedWeight& w) : w_(w) {}
  const float* load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const override;

 private:
  const PackedWeight& w_;
};

class DensePanels final : public PanelSource {
 public:
  explicit DensePanels(Mat b) : b_(b) {}
  const float* load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* buffer, int64_t* ldb) const override;

 private:
  Mat b_;
};

// A summand of low rank to B: alpha U V, U [k, rank], V [rank, n].
struct LowRank {
  Mat u;
  Mat v;
  int64_t rank;
  float alpha;
  float* au;  // A U [m, rank] is left here
};

// C [m, n] = A (B + the summand, if any), A [m, k]; no extent is zero. A U comes from the A packed for B, and its
// product with V continues the sum over k. The result does not depend on the number of threads.
void gemm(int64_t m, int64_t n, int64_t k, Mat a, const PanelSource& b, const LowRank* summand, float* c, int64_t ldc,
          Scratch scratch);

// C [m, rank] = A U for few columns, m at most kRowBlock: A is used as it is packed.
void narrow_gemm(int64_t m, int64_t rank, int64_t k, Mat a, Mat u, float* c, Scratch scratch);

// Enough for a product of any shape.
size_t gemm_scratch_bytes();

}  // namespace mft
