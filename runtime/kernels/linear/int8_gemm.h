#pragma once

// Matrix products of activations and weights in 8 bits, summed in 32 bits within blocks of kInt8Block and in float32
// across them.

#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_panel.h"
#include "runtime/kernels/linear/int8_rows.h"
#include "runtime/kernels/linear/int8_tiles.h"

namespace mft::MFT_ISA {

// Where the right-hand factor B [k, n] comes from.
class Int8Source {
 public:
  // Columns [n0, n0 + nr), rows [k0, k0 + kc): n0 a multiple of kTileCols, k0 one of kInt8Block, kc <= kInt8Chunk.
  virtual void load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const = 0;

 protected:
  ~Int8Source() = default;
};

// B = W^T.
class Int8Forward final : public Int8Source {
 public:
  explicit Int8Forward(const PackedWeight& w) : w_(w) {}
  void load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const override;

 private:
  const PackedWeight& w_;
};

// B = W.
class Int8Transposed final : public Int8Source {
 public:
  explicit Int8Transposed(const PackedWeight& w) : w_(w) {}
  void load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const override;

 private:
  const PackedWeight& w_;
};

// The columns of A that its codes leave out, multiplied with those of W in float32.
struct Outliers {
  const float* x;  // A itself, [m, k]
  const PackedWeight& w;
  int64_t columns[kOutliers];  // as find_outliers gives them
};

// A summand of C in float32: alpha times left [m, rank] times right [rank, n].
struct Summand {
  Mat left;
  Mat right;
  int64_t rank;
  float alpha;
};

// C [m, n] = A B, plus outliers and summand, if any. The result does not depend on the number of threads.
void int8_gemm(const Int8Rows& a, int64_t n, const Int8Source& b, const Outliers* outliers, const Summand* summand,
               float* c, int64_t ldc, Scratch scratch);

// What a product is added to.
enum class AddTo { kNothing, kSums, kC };

// C [rows of one tile of A, nr] = their columns [k0, k0 + kc) times a panel of as many rows, on this thread, plus what
// `add_to` says. `sums` [kTileRows][kTileCols] are overwritten on the way, whether added or not. The caller holds a
// MatrixUnit.
void multiply_int8_panel(const Int8Rows& a, int64_t tile, int64_t k0, int64_t kc, Int8Panel panel, AddTo add_to,
                         float* sums, float* c, int64_t ldc, int64_t nr);

// Enough for a product of at most kRowBlock rows, and a summand of this rank.
size_t int8_gemm_scratch_bytes(int64_t rank);

}  // namespace mft::MFT_ISA
