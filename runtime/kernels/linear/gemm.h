#pragma once

// float32 matrix products from one register tile of kTileRows x kTileCols. Weights are decoded a panel of as many
// columns at a time into the cache and used for all rows while they are there.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/platform/scratch.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

// 12 or 24 sums beside what they are made of: 16 registers, or 32 with AVX-512 and NEON.
constexpr int64_t kTileRows = kVec == 16 ? 12 : 6;
constexpr int64_t kTileCols = kVec == 16 ? 32 : 16;
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

// Floats of m rows packed for the tile kernel: tiles of kTileRows rows, each [k][kTileRows] and some floats of slack.
constexpr int64_t kPackSlack = kVec == 16 ? 4 : 2;
constexpr int64_t packed_floats(int64_t m, int64_t k) {
  return (m + kTileRows - 1) / kTileRows * (kTileRows * k + kPackSlack);
}

// Packs one tile: out[k][r] = alpha * rows[r][k * col]; a null row packs as zeros.
void pack_tile(const float* const rows[kTileRows], int64_t col, int64_t k, float alpha, float* out);

// Packs a [m, k], times alpha.
void pack(Mat a, int64_t m, int64_t k, float alpha, float* out);

// Packs B [k, n] as its panels, one after the other: each is k rows of kTileCols floats, zero past column n.
constexpr int64_t panel_floats(int64_t k, int64_t n) { return (n + kTileCols - 1) / kTileCols * kTileCols * k; }
void pack_panels(Mat b, int64_t k, int64_t n, float* out);

// C [m, nr] (+)= A B for packed A [m, k] and a panel B of k rows of kTileCols floats, ldb apart; nr <= kTileCols. Of
// each row of B as many vectors are read as hold nr floats.
void multiply_panel(const float* packed, int64_t m, int64_t k, const float* b, int64_t ldb, float* c, int64_t ldc,
                    int64_t nr, bool accumulate);

// The panel of columns [n0, n0 + nr) of W^T, rows [k0, k0 + kc), as kc rows of kTileCols floats.
void load_panel(const PackedWeight& w, int64_t n0, int64_t nr, int64_t k0, int64_t kc, float* out);

// The panel of columns [k0, k0 + kr) of W, rows [n0, n0 + nc); `out` holds nc rounded up to 16 rows.
void load_panel_transposed(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, int64_t kr, float* out);

// --- All threads -------------------------------------------------------------------------------

// Where the right-hand factor B [k, n] of a product comes from.
class PanelSource {
 public:
  // Rows [k0, k0 + kc) of the nr columns at n0, as rows of kTileCols floats *ldb apart, either in place or written to
  // buffer [kChunk][kTileCols]. n0 is a multiple of kTileCols, k0 one of 16, kc <= kChunk.
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

// Enough for a product of any shape.
size_t gemm_scratch_bytes();

}  // namespace mft::MFT_ISA
