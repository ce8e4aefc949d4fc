// The gated short convolution against float64: rows packed into one sequence, and generation piece by piece.

#include "runtime/kernels/attention/short_conv.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

struct Case {
  ShortConvShape shape;
  Floats bcx, taps, dy;
  std::vector<int64_t> positions;

  Case(int64_t t, int64_t d, int64_t n, int64_t row)
      : shape{t, d, n}, bcx(random_floats(3 * t * d)), taps(random_floats(n * d)), dy(random_floats(t * d)) {
    for (int64_t i = 0; i < t; ++i) positions.push_back(i % row);
  }
  double part(int64_t t, int64_t which, int64_t i) const { return bcx[(3 * t + which) * shape.d + i]; }
};

/// y, and the gradient of sum(dy * y) to bcx.
void reference(const Case& c, Doubles& y, Doubles& dbcx) {
  const auto [t, d, n] = c.shape;
  y.assign(t * d, 0);
  dbcx.assign(3 * t * d, 0);
  for (int64_t s = 0; s < t; ++s) {
    for (int64_t i = 0; i < d; ++i) {
      double v = 0;
      for (int64_t j = 0; j < n && j <= c.positions[s]; ++j) {
        const double tap = c.taps[(n - 1 - j) * d + i], dv = c.dy[s * d + i] * c.part(s, 1, i);
        v += tap * c.part(s - j, 0, i) * c.part(s - j, 2, i);
        dbcx[3 * (s - j) * d + i] += dv * tap * c.part(s - j, 2, i);
        dbcx[(3 * (s - j) + 2) * d + i] += dv * tap * c.part(s - j, 0, i);
      }
      y[s * d + i] = c.part(s, 1, i) * v;
      dbcx[(3 * s + 1) * d + i] += c.dy[s * d + i] * v;
    }
  }
}

void test_case(const Case& c) {
  Doubles y, dbcx;
  reference(c, y, dbcx);
  Floats out(y.size()), grad(dbcx.size());
  short_conv(c.shape, c.bcx.data(), c.taps.data(), c.positions.data(), out.data());
  short_conv_backward(c.shape, c.dy.data(), c.bcx.data(), c.taps.data(), c.positions.data(), grad.data());
  CHECK(error(out, y) < kTolerance);
  CHECK(error(grad, dbcx) < kTolerance);
}

/// One row in pieces of `piece` tokens gives what it gives whole, whatever lies in the first state.
void test_decode(int64_t t, int64_t d, int64_t n, int64_t piece) {
  const Case c(t, d, n, t);
  Doubles y, unused;
  reference(c, y, unused);
  Floats out(y.size()), state((n - 1) * d, 1e30f), next(state.size());
  for (int64_t i = 0; i < t; i += piece) {
    const int64_t count = std::min(piece, t - i);
    short_conv_decode({count, d, n}, c.bcx.data() + 3 * i * d, c.taps.data(), state.data(), c.positions.data() + i,
                      out.data() + i * d, next.data());
    std::swap(state, next);
  }
  CHECK(error(out, y) < kTolerance);
}

}  // namespace

int run_tests() {
  for (const int64_t d : {1, 8, 13, 576}) {
    for (const int64_t n : {1, 2, 3, 5}) {
      for (const int64_t row : {1, 2, 4, 100}) test_case(Case(37, d, n, row));
      test_case(Case(1, d, n, 1));
    }
    for (const int64_t n : {2, 3, 5}) {
      for (const int64_t piece : {1, 2, 3, 7, 20}) test_decode(20, d, n, piece);
    }
  }
  return finish();
}
