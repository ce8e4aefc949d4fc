// Packed weights, matrix products and the linear layer against float64.

#include <algorithm>

#include "runtime/kernels/linear/decode.h"
#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

Doubles zeros(int64_t n) { return Doubles(static_cast<size_t>(n)); }

void test_decode(const char* format) {
  const int64_t n = 20;
  const int64_t k = 64;
  const TestWeight w(format, n, k);
  Floats row(k);
  for (int64_t i = 0; i < n; ++i) {
    decode_row(w.packed, i, row.data());
    for (int64_t j = 0; j < k; ++j) CHECK_NEAR(row[j], w.dense[i * k + j], 1e-5);
  }
  const int64_t ld = 24;  // further apart than need be
  Floats panel(48 * ld);
  decode_panel(w.packed, 1, 7, 41, panel.data(), ld);
  for (int64_t j = 0; j < 16; ++j) {
    for (int64_t i = 0; i < 41; ++i) {
      CHECK_NEAR(panel[i * ld + j], 16 + j < n ? w.dense[(16 + j) * k + 7 + i] : 0., 1e-5);
    }
  }
  Floats transposed(32 * ld);
  decode_panel_transposed(w.packed, 0, n, 48, transposed.data(), ld);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      CHECK_NEAR(transposed[i * ld + j], w.dense[i * k + 48 + j], 1e-5);
    }
  }
}

void test_parse() {
  Format format;
  CHECK(parse_format("q4_1", &format) && format.code == Code::kQ4_1 && format.group == 32);
  CHECK(parse_format("f16", &format) && format.code == Code::kF16);
  CHECK(parse_format("nf4_g64", &format) && format.code == Code::kNF4 && format.group == 64);
  CHECK(parse_format("q8_1_g16", &format) && format.code == Code::kQ8_1 && format.group == 16);
  CHECK(parse_format("iq4_nl", &format) && format.code == Code::kIQ4NL && format.group == 32);
  CHECK(!parse_format("q4_k", &format));
  CHECK(!parse_format("q4_0_g48", &format));
  CHECK(!parse_format("f16_g64", &format));
}

void test_half() {
  // Zero, the smallest and largest denormal, one, -2, the largest, infinity.
  const uint16_t halves[] = {0, 1, 0x3ff, 0x3c00, 0xc000, 0x7bff, 0x7c00};
  const float values[] = {0.f, 0x1p-24f, 0x1.ff8p-15f, 1.f, -2.f, 65504.f, INFINITY};
  for (int i = 0; i < 7; ++i) {
    std::vector<uint8_t> bytes(1024);
    std::memcpy(bytes.data(), halves + i, 2);
    const PackedWeight w{bytes.data(), {Code::kF16, 32}, 1, 32};
    Floats row(32);
    Floats panel(32 * 16);
    decode_row(w, 0, row.data());
    decode_panel(w, 0, 0, 32, panel.data(), 16);
    CHECK(row[0] == values[i] && panel[0] == values[i]);
  }
}

void test_packed_product(int64_t m, int64_t n, int64_t k) {
  const Floats a = random_floats(m * k);
  const Floats b = random_floats(k * n);
  for (int layout = 0; layout < 4; ++layout) {
    const Mat am = layout % 2 == 0 ? Mat{a.data(), k, 1} : Mat{a.data(), 1, m};
    const Mat bm = layout / 2 == 0 ? Mat{b.data(), n, 1} : Mat{b.data(), 1, k};
    Floats c = random_floats(m * n);
    Doubles expected(c.begin(), c.end());
    add_product(expected, m, n, k, 0.5, a, am.row, am.col, b, bm.row, bm.col);
    Floats packed(packed_floats(m, k)), panels(panel_floats(k, n));
    pack(am, m, k, 0.5f, packed.data());
    pack_panels(bm, k, n, panels.data());
    for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
      multiply_panel(packed.data(), m, k, panels.data() + n0 * k, kTileCols, c.data() + n0, n,
                     std::min(kTileCols, n - n0), true);
    }
    CHECK(error(c, expected) < kTolerance);
  }
}

void test_layer(const char* format, int64_t m, int64_t n, int64_t k, int64_t rank) {
  const TestWeight w(format, n, k);
  const Floats x = random_floats(m * k);
  const Floats dy = random_floats(m * n);
  const Floats a = random_floats(rank * k);
  const Floats b = random_floats(n * rank);
  const Lora lora{a.data(), b.data(), rank, 0.7f};
  const Lora* branch = rank > 0 ? &lora : nullptr;
  const double scale = lora.scale;

  Doubles y = zeros(m * n), h = zeros(m * rank);
  add_product(y, m, n, k, 1, x, k, 1, w.dense, 1, k);
  add_product(h, m, rank, k, 1, x, k, 1, a, 1, k);
  add_product(y, m, n, rank, scale, h, rank, 1, b, 1, rank);
  Doubles dx = zeros(m * k), dh = zeros(m * rank), ga = zeros(rank * k), gb = zeros(n * rank);
  add_product(dx, m, k, n, 1, dy, n, 1, w.dense, k, 1);
  add_product(dh, m, rank, n, scale, dy, n, 1, b, rank, 1);
  add_product(dx, m, k, rank, 1, dh, rank, 1, a, k, 1);
  add_product(ga, rank, k, m, 1, dh, 1, rank, x, k, 1);
  add_product(gb, n, rank, m, scale, dy, 1, n, h, rank, 1);

  TestScratch scratch(linear_scratch_bytes(Compute::kFloat32, m, n, k, rank));
  Floats out(m * n), again(m * n);
  linear_forward(Compute::kFloat32, x.data(), m, w.packed, branch, false, out.data(), scratch.get());
  linear_forward(Compute::kFloat32, x.data(), m, w.packed, branch, false, again.data(), scratch.get());
  CHECK(error(out, y) < kTolerance);
  CHECK(out == again);

  Floats gx(m * k), gx2(m * k), gra(rank * k), gra2(rank * k), grb(n * rank), grb2(n * rank);
  linear_backward(Compute::kFloat32, dy.data(), x.data(), m, w.packed, branch, gx.data(), gra.data(), grb.data(),
                  scratch.get());
  linear_backward(Compute::kFloat32, dy.data(), x.data(), m, w.packed, branch, nullptr, gra2.data(), grb2.data(),
                  scratch.get());
  linear_backward(Compute::kFloat32, dy.data(), x.data(), m, w.packed, branch, gx2.data(), gra2.data(), grb2.data(),
                  scratch.get());
  CHECK(error(gx, dx) < kTolerance);
  CHECK(error(gra, ga) < kTolerance);
  CHECK(error(grb, gb) < kTolerance);
  CHECK(gx == gx2 && gra == gra2 && grb == grb2);
}

}  // namespace

int run_tests() {
  test_parse();
  test_half();
  for (const char* format : kFormats) test_decode(format);
  for (const char* format : {"q4_0_g16", "q4_1_g16", "q8_0_g16", "nf4_g16"}) test_decode(format);
  test_packed_product(1, 1, 1);
  test_packed_product(7, 20, 33);
  test_packed_product(64, 96, 300);
  for (const char* format : kFormats) {
    for (const int64_t m : {1, 5, 6, 7, 64, 257}) test_layer(format, m, 20, 64, 4);
    for (const int64_t rank : {0, 1, 8, 16, 33}) test_layer(format, 7, 48, 32, rank);
  }
  test_layer("q8_0_g16", 70, 100, 592, 4);  // columns that are no multiple of 32
  test_layer("q4_1_g16", 7, 60, 336, 0);
  test_layer("q4_0_g64", 70, 100, 576, 4);
  test_layer("q4_1_g128", 70, 100, 384, 4);
  test_layer("nf4_g64", 7, 60, 640, 0);
  test_layer("q4_0", 257, 100, 576, 16);
  test_layer("q4_1", 9, 576, 1600, 256);
  test_layer("q8_0", 520, 300, 96, 0);
  test_layer("q4_0", 9, 32, 4128, 40);  // LoRA panels packed in several steps
  return finish();
}
