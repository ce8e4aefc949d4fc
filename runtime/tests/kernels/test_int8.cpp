// Linear layers in 8 bits against float64: the error of the product, columns left out, tails, threads, values that are
// not finite; the bits of the integer parts, which every instruction set but those of 7-bit weights shares; and the
// largest codes.

#include <algorithm>
#include <cmath>

#include "runtime/kernels/linear/int8_gemm.h"
#include "runtime/kernels/linear/int8_panel.h"
#include "runtime/kernels/linear/int8_vec.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

constexpr double kScale = 0.7;
// Of random numbers, in the Frobenius norm: what was measured, with a margin. 7-bit weights err more.
constexpr double kError = kWeightMax == 127 ? 0.012 : 0.02;
constexpr double kErrorWithOutliers = kWeightMax == 127 ? 0.026 : 0.035;

struct Layer {
  TestWeight w;
  Floats a, b;
  Lora lora;

  Layer(const char* format, int64_t n, int64_t k, int64_t rank)
      : w(format, n, k),
        a(random_floats(rank * k, 0.05f)),
        b(random_floats(n * rank)),
        lora{a.data(), b.data(), rank, kScale} {}
  const Lora* branch() const { return lora.rank > 0 ? &lora : nullptr; }
};

struct Results {
  Floats y, dx, da, db;
};

Results run(const Layer& layer, const Floats& x, const Floats& dy, int64_t m) {
  const PackedWeight& w = layer.w.packed;
  const int64_t n = w.rows, k = w.cols, rank = layer.lora.rank;
  Results r{Floats(m * n), Floats(m * k), Floats(rank * k), Floats(n * rank)};
  TestScratch scratch(linear_scratch_bytes(Compute::kInt8, m, n, k, rank));
  linear_forward(Compute::kInt8, x.data(), m, w, layer.branch(), false, r.y.data(), scratch.get());
  linear_backward(Compute::kInt8, dy.data(), x.data(), m, w, layer.branch(), r.dx.data(), r.da.data(), r.db.data(),
                  scratch.get());
  return r;
}

void test_layer(const char* format, int64_t m, int64_t n, int64_t k, int64_t rank, float outliers) {
  const Layer layer(format, n, k, rank);
  Floats x = random_floats(m * k), dy = random_floats(m * n);
  for (int64_t i = 0; i < m && outliers > 0; ++i) {
    for (int64_t j = 5; j < k; j += 97) x[i * k + j] *= outliers;
    for (int64_t j = 5; j < n; j += 97) dy[i * n + j] *= outliers;
  }
  const Results r = run(layer, x, dy, m);
  Doubles y(m * n), dx(m * k), h(m * rank), dh(m * rank);
  add_product(y, m, n, k, 1, x, k, 1, layer.w.dense, 1, k);
  add_product(h, m, rank, k, 1, x, k, 1, layer.a, 1, k);
  add_product(y, m, n, rank, kScale, h, rank, 1, layer.b, 1, rank);
  add_product(dx, m, k, n, 1, dy, n, 1, layer.w.dense, k, 1);
  add_product(dh, m, rank, n, 1, dy, n, 1, layer.b, rank, 1);
  add_product(dx, m, k, rank, kScale, dh, rank, 1, layer.a, k, 1);
  const double bound = outliers > 0 ? kErrorWithOutliers : kError;
  CHECK(error(r.y, y) < bound);
  CHECK(error(r.dx, dx) < bound);
  if (rank == 0) return;
  Doubles da(rank * k), db(n * rank);
  add_product(da, rank, k, m, kScale, dh, 1, rank, x, k, 1);
  add_product(db, n, rank, m, kScale, dy, 1, n, h, rank, 1);
  CHECK(error(r.da, da) < bound);
  CHECK(error(r.db, db) < bound);
}

// Where the largest columns are at most kOutliers, they cost the others nothing.
void test_outliers() {
  const int64_t m = 30, n = 48, k = 512;
  const Layer layer("q4_1", n, k, 0);
  Floats x = random_floats(m * k);
  const Floats dy(m * n);
  for (int64_t i = 0; i < m; ++i) x[i * k + 3] *= 1000.f, x[i * k + 400] *= 20000.f;
  Doubles y(m * n);
  add_product(y, m, n, k, 1, x, k, 1, layer.w.dense, 1, k);
  CHECK(error(run(layer, x, dy, m).y, y) < 1e-4);
}

// What a call leaves in the scratch of its x serves the next one, for another weight.
void test_same_x() {
  for (const int64_t m : {5, 70, 300}) {
    const int64_t k = 200 / 32 * 32;
    const Layer first("q4_1", 48, k, 4), second("iq4_nl", 80, k, 0);
    const Floats x = random_floats(m * k), dy(m * 80);
    const Results expected = run(second, x, dy, m);
    TestScratch scratch(linear_scratch_bytes(Compute::kInt8, m, 80, k, 4));
    Floats y(m * 80);
    const auto forward = [&](const Layer& layer, bool same_x, const Floats& input) {
      linear_forward(Compute::kInt8, input.data(), m, layer.w.packed, layer.branch(), same_x, y.data(), scratch.get());
    };
    forward(first, false, x);
    forward(second, true, x);
    CHECK(y == expected.y);
    forward(first, false, random_floats(m * k));
    forward(second, true, x);
    CHECK((y != expected.y) == (m <= 256));  // codes of more rows than that are not all there
    forward(second, false, x);
    CHECK(y == expected.y);
  }
}

void test_not_finite() {
  const int64_t m = 3, n = 16, k = 256;
  const Layer layer("q4_0", n, k, 0);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Floats x = random_floats(m * k), dy = random_floats(m * n);
    x[k + 200] = bad;
    dy[n + 3] = bad;
    const Results r = run(layer, x, dy, m);
    for (int64_t j = 0; j < n; ++j) CHECK(std::isfinite(r.y[j]) && !std::isfinite(r.y[n + j]));
    for (int64_t j = 0; j < k; ++j) CHECK(std::isfinite(r.dx[j]) && !std::isfinite(r.dx[k + j]));
  }
}

void test_zeros() {
  const int64_t m = 5, n = 32, k = 160;
  const Layer layer("q8_0", n, k, 4);
  const Results r = run(layer, Floats(m * k), Floats(m * n), m);
  for (const Floats* out : {&r.y, &r.dx, &r.da, &r.db}) {
    CHECK(std::all_of(out->begin(), out->end(), [](float v) { return v == 0.f; }));
  }
}

void test_threads() {
  const int64_t m = 70, n = 80, k = 320;
  const Layer layer("nf4", n, k, 8);
  const Floats x = random_floats(m * k), dy = random_floats(m * n);
  const auto run_in = [&](int64_t count) {
    const ThreadParts parts(count);
    return run(layer, x, dy, m);
  };
  const Results one = run_in(1), three = run_in(3);
  CHECK(one.y == three.y && one.dx == three.dx && one.da == three.da && one.db == three.db);
}

uint64_t hash(uint64_t h, int64_t value) { return (h ^ static_cast<uint64_t>(value)) * 1099511628211u; }

// The codes of weights and activations that numbers without any luck in them get, in an order of their own.
uint64_t hash_of_codes(const char* format) {
  const int64_t m = 7, n = 32, k = 192;
  std::vector<uint8_t> data(static_cast<size_t>(n / kPanelRows * (k / 32)) * format_named(format).block_bytes());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7919 >> 3);
  const size_t block = format_named(format).block_bytes(), header = traits_of(format_named(format).code).header_bytes();
  for (size_t i = 0; i < data.size(); i += block) {  // scales and minima of 0.5 to 2
    for (size_t j = 0; j < header; j += 2) {
      const uint16_t half = static_cast<uint16_t>(0x3800 + (i * 31 + j * 57) % 0x800);
      const uint16_t single =
          j / 2 % 2 ? static_cast<uint16_t>(0x3f00 + (i + j) % 0x80) : static_cast<uint16_t>(j * 577);
      const uint16_t bits = header == 64 && format[0] != 'q' ? single : half;
      std::memcpy(&data[i + j], &bits, 2);
    }
  }
  const PackedWeight w{data.data(), format_named(format), n, k};
  std::vector<uint8_t> codes(Int8Panel::kCodeBytes);
  Floats scales(Int8Panel::kScales);
  const Int8Panel panel{codes.data(), scales.data()};
  uint64_t h = 14695981039346656037u;
  const auto add_panel = [&](int64_t columns, int64_t length) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t i = 0; i < length; ++i)
        h = hash(h, static_cast<int8_t>(codes[Int8Panel::index(i, c)] - kWeightOffset));
    }
  };
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    load_int8_panel(w, n0, std::min(kTileCols, n - n0), 0, k, panel);
    add_panel(std::min(kTileCols, n - n0), k);
  }
  for (int64_t k0 = 0; k0 < k; k0 += kTileCols) {
    load_int8_panel_transposed(w, 0, n, k0, std::min(kTileCols, k - k0), panel);
    add_panel(std::min(kTileCols, k - k0), n);
  }
  Floats x(m * k);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1013) / 64.f - 7.f;
  ScratchSize size;
  add_int8_rows(m, k, size);
  TestScratch scratch(size.bytes);
  Scratch memory = scratch.get();
  const Int8Rows rows = take_int8_rows(m, k, memory);
  quantize_rows(x.data(), nullptr, rows);
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t i = 0; i < k; ++i) h = hash(h, rows.tile_codes(r / kTileRows)[Int8Rows::index(i, r % kTileRows)]);
  }
  return h;
}

void test_bits() {
  if (kWeightMax != 127) return;
  const struct {
    const char* format;
    uint64_t expected;
  } cases[] = {{"q4_0", 0xf14f05620cbbd9beu},  {"q4_1", 0x4eb16ffffe4d7e92u}, {"q8_0", 0xa924e3b43b6e63cbu},
               {"q8_1", 0x3a214e88094d619du},  {"nf4", 0xc7ec170b971c3b03u},  {"fp4", 0x4a8f2d6516531ff3u},
               {"iq4_nl", 0x639bee96a9a266c1u}};
  for (const auto& c : cases) {
    const uint64_t h = hash_of_codes(c.format);
    if (h != c.expected) std::fprintf(stderr, "{\"%s\", 0x%llx}, ", c.format, static_cast<unsigned long long>(h));
    CHECK(h == c.expected);
  }
}

// The largest codes with signs that add up and cancel, for every count of rows that a tile may have.
void test_largest_codes() {
  const auto sign = [](int64_t i, int64_t period) { return i / period % 2 == 0 ? 1 : -1; };
  std::vector<uint8_t> codes(Int8Panel::kCodeBytes);
  Floats scales(Int8Panel::kScales, 1.f), sums(kTileRows * kTileCols);
  for (int64_t m = 1; m <= kTileRows; ++m) {
    for (const int64_t k : {16, 144, 256}) {
      ScratchSize size;
      add_int8_rows(m, k, size);
      TestScratch scratch(size.bytes);
      Scratch memory = scratch.get();
      const Int8Rows rows = take_int8_rows(m, k, memory);
      for (const int64_t period : {1, 2, 3, 4, 8, 1000}) {
        const auto weight = [&](int64_t i, int64_t c) { return sign(c, 1) * (c % 4 < 2 ? 1 : sign(i, period)); };
        Floats x(m * k), y(m * kTileCols);
        for (int64_t i = 0; i < m * k; ++i) x[i] = static_cast<float>(sign(i % k + i / k, period));
        for (int64_t c = 0; c < kTileCols; ++c) {
          for (int64_t i = 0; i < k; ++i) {
            codes[Int8Panel::index(i, c)] = static_cast<uint8_t>(kWeightOffset + kWeightMax * weight(i, c));
          }
        }
        quantize_rows(x.data(), nullptr, rows);
        const MatrixUnit unit;
        multiply_int8_panel(rows, 0, 0, k, {codes.data(), scales.data()}, AddTo::kNothing, sums.data(), y.data(),
                            kTileCols, kTileCols);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < kTileCols; ++c) {
            double expected = 0;
            for (int64_t i = 0; i < k; ++i) expected += kWeightMax * weight(i, c) * x[r * k + i];
            CHECK(std::abs(y[r * kTileCols + c] - expected) <= 1e-6 * static_cast<double>(k * kWeightMax));
          }
        }
      }
    }
  }
}

}  // namespace

int run_tests() {
  for (const char* format : kFormats) {
    test_layer(format, 70, 96, 320, 8, 0.f);
    test_layer(format, 33, 40, 256, 0, 20.f);
  }
  for (const char* format : {"q4_1_g16", "nf4_g64", "q8_0_g128", "q4_0_g128"})
    test_layer(format, 40, 144, 384, 16, 0.f);
  // Less than a tile, a panel and a block; more than a chunk of the sum, in either direction; more than a block of
  // rows.
  test_layer("q4_0", 1, 16, 32, 1, 0.f);
  test_layer("q4_1", 13, 20, 64, 3, 0.f);
  test_layer("q4_1", 5, 2120, 1184, 0, 0.f);
  test_layer("q4_1", 300, 48, 128, 4, 0.f);
  test_outliers();
  test_same_x();
  test_not_finite();
  test_zeros();
  test_threads();
  test_bits();
  test_largest_codes();
  return finish();
}
