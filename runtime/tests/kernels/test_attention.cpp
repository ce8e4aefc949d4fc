// Attention forward, backward and with a cache against float64.

#include <algorithm>
#include <limits>

#include "runtime/kernels/attention/attention.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

struct Reference {
  Doubles o, lse, dq, dk, dv;
};

// Keys are numbered from 0, query i of shape.t being key `past` + i.
Reference reference(const AttentionShape& s, const Floats& q, const Floats& k, const Floats& v,
                    const std::vector<int64_t>& positions, int64_t past, const Floats& dout) {
  const int64_t keys = past + s.t;
  Reference out{Doubles(q.size()), Doubles(s.heads * s.t), Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
  for (int64_t h = 0; h < s.heads; ++h) {
    const int64_t kv = h / (s.heads / s.kv_heads);
    for (int64_t i = 0; i < s.t; ++i) {
      const int64_t qi = (i * s.heads + h) * s.dim;
      Doubles p(keys), slope(keys);
      double total = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t kj = (j * s.kv_heads + kv) * s.dim;
        const int64_t place = past + i;
        if (j < place - positions[i] || j > place) continue;
        if (s.window > 0 && j <= place - s.window) continue;
        double dot = 0;
        for (int64_t d = 0; d < s.dim; ++d) dot += static_cast<double>(q[qi + d]) * k[kj + d];
        double score = s.scale * dot;
        if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
        slope[j] = s.softcap > 0 ? 1 - score / s.softcap * (score / s.softcap) : 1;
        p[j] = std::exp(score);
        total += p[j];
      }
      if (s.sinks != nullptr) total += std::exp(static_cast<double>(s.sinks[h]));
      out.lse[h * s.t + i] = std::log(total);
      double delta = 0;
      for (int64_t j = 0; j < keys; ++j) {
        if (p[j] == 0) continue;  // not visible
        p[j] /= total;
        const int64_t kj = (j * s.kv_heads + kv) * s.dim;
        for (int64_t d = 0; d < s.dim; ++d) out.o[qi + d] += p[j] * v[kj + d];
      }
      for (int64_t d = 0; d < s.dim; ++d) delta += dout[qi + d] * out.o[qi + d];
      for (int64_t j = 0; j < keys; ++j) {
        if (p[j] == 0) continue;
        const int64_t kj = (j * s.kv_heads + kv) * s.dim;
        double dp = 0;
        for (int64_t d = 0; d < s.dim; ++d) dp += static_cast<double>(dout[qi + d]) * v[kj + d];
        const double ds = p[j] * (dp - delta) * slope[j] * s.scale;
        for (int64_t d = 0; d < s.dim; ++d) {
          out.dv[kj + d] += p[j] * dout[qi + d];
          out.dq[qi + d] += ds * k[kj + d];
          out.dk[kj + d] += ds * q[qi + d];
        }
      }
    }
  }
  return out;
}

// Of random numbers, which are as hard to round as any: what was measured, with a margin.
constexpr double kInt8Error = 0.03;

void check(Compute compute, const AttentionShape& s, int64_t row_length);

// Rows of `row_length` tokens are packed one after the other.
void test_training(const AttentionShape& s, int64_t row_length) {
  for (const Compute compute : {Compute::kFloat32, Compute::kInt8}) check(compute, s, row_length);
}

void check(Compute compute, const AttentionShape& s, int64_t row_length) {
  const double tolerance = compute == Compute::kFloat32 ? kTolerance : kInt8Error;
  const int64_t nq = s.t * s.heads * s.dim;
  const int64_t nk = s.t * s.kv_heads * s.dim;
  const Floats q = random_floats(nq), k = random_floats(nk), v = random_floats(nk);
  const Floats dout = random_floats(nq);
  std::vector<int64_t> positions(s.t);
  for (int64_t i = 0; i < s.t; ++i) positions[i] = i % row_length;
  const Reference expected = reference(s, q, k, v, positions, 0, dout);

  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Floats first[5];
  for (int run = 0; run < 2; ++run) {
    TestScratch scratch(attention_scratch_bytes(compute, s));
    Floats o(nq, kNaN), lse(s.heads * s.t, kNaN), dq(nq, kNaN), dk(nk, kNaN), dv(nk, kNaN);
    attention_forward(compute, s, q.data(), k.data(), v.data(), positions.data(), o.data(), lse.data(), scratch.get());
    attention_backward(compute, s, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(), positions.data(),
                       dq.data(), dk.data(), dv.data(), scratch.get());
    if (run == 0) {
      CHECK(error(o, expected.o) < tolerance);
      CHECK(error(lse, expected.lse) < tolerance);
      // A single visible key has ds = 0, or little beside a sink, where only rounding is left.
      if (std::min(s.t, row_length) > 1 || (s.sinks != nullptr && compute == Compute::kFloat32)) {
        CHECK(error(dq, expected.dq) < tolerance);
        CHECK(error(dk, expected.dk) < tolerance);
      }
      CHECK(error(dv, expected.dv) < tolerance);
      first[0] = o, first[1] = lse, first[2] = dq, first[3] = dk, first[4] = dv;
    } else {
      CHECK(first[0] == o && first[1] == lse && first[2] == dq && first[3] == dk && first[4] == dv);
    }
  }
}

// Random keys and values are as hard to round as any.
const std::pair<KvFormat, double> kKvFormats[] = {
    {KvFormat::kFloat32, kTolerance}, {KvFormat::kFloat16, 1e-3}, {KvFormat::kInt8, 2e-2}};

void test_decode(const AttentionShape& s, int64_t past) {
  const int64_t width = s.kv_heads * s.dim;
  const Floats q = random_floats(s.t * s.heads * s.dim);
  const Floats k = random_floats((past + s.t) * width), v = random_floats((past + s.t) * width);
  std::vector<int64_t> positions(s.t);
  for (int64_t i = 0; i < s.t; ++i) positions[i] = past + i;
  const Reference expected = reference(s, q, k, v, positions, past, q);
  const int64_t rows = past + s.t, query_width = s.heads * s.dim;
  for (const auto& [format, tolerance] : kKvFormats) {
    const int64_t row = kv_row_bytes(format, s.kv_heads, s.dim);
    std::vector<uint8_t> keys(rows * row), values(keys.size());
    kv_store(format, k.data(), rows, s.kv_heads, s.dim, keys.data());
    kv_store(format, v.data(), rows, s.kv_heads, s.dim, values.data());
    const KvCache cache{keys.data(), values.data(), format};
    TestScratch scratch(attention_scratch_bytes(Compute::kFloat32, s));
    Floats o(q.size());
    attention_decode(s, q.data(), cache, past, o.data(), scratch.get());
    CHECK(error(o, expected.o) < tolerance);
    if (s.t > 8) continue;
    // Alone, each token has the same bits.
    for (int64_t i = 0; i < s.t; ++i) {
      AttentionShape one = s;
      one.t = 1;
      Floats alone(query_width);
      attention_decode(one, q.data() + i * query_width, cache, past + i, alone.data(), scratch.get());
      CHECK(std::equal(alone.begin(), alone.end(), o.begin() + i * query_width));
    }
  }
}

void test_kv_store() {
  constexpr int64_t kHeads = 2, kDim = 51;  // blocks of 32 and 19
  Floats x = random_floats(3 * kHeads * kDim);
  x[0] = 1e6f;  // beyond float16
  x[kHeads * kDim] = std::numeric_limits<float>::infinity();
  std::fill_n(x.begin() + 2 * kHeads * kDim, kDim, 0.f);
  for (const auto& [format, tolerance] : kKvFormats) {
    std::vector<uint8_t> rows(3 * kv_row_bytes(format, kHeads, kDim));
    kv_store(format, x.data(), 3, kHeads, kDim, rows.data());
    for (int64_t head = 0; head < kHeads; ++head) {
      Floats out(3 * kDim);
      kv_expand(format, KvHead(format, rows.data(), kHeads, kDim, head), 0, 3, kDim, out.data());
      for (int64_t t = 0; t < 3; ++t) {
        const float* given = x.data() + (t * kHeads + head) * kDim;
        for (int64_t i = 0; i < kDim; ++i) {
          float largest = 0.f;
          for (int64_t j = i / kKvBlock * kKvBlock; j < std::min(kDim, (i / kKvBlock + 1) * kKvBlock); ++j) {
            largest = std::max(largest, std::abs(given[j]));
          }
          const float found = out[t * kDim + i];
          if (std::isinf(largest) && format == KvFormat::kInt8) {
            CHECK(std::isnan(found));
          } else if (format == KvFormat::kFloat16 && std::abs(given[i]) > 65504.f) {
            CHECK(found == 65504.f);
          } else if (format == KvFormat::kFloat32) {
            CHECK(found == given[i]);
          } else {
            CHECK(std::abs(found - given[i]) <= (format == KvFormat::kInt8 ? 0.51f / 127 * largest : 1e-3f));
          }
        }
      }
    }
  }
}

}  // namespace

int run_tests() {
  const Floats sinks = {0.5f, -3.f, 4.f, 1.f, 30.f, -80.f};
  for (const int64_t dim : {8, 16, 64, 96, 256}) {
    const float scale = 1.f / std::sqrt(static_cast<float>(dim));
    const bool all =
        dim == 16 || dim == 64;  // what depends on the length is tried with these, under sanitizers and QEMU
    const std::vector<int64_t> lengths = all ? std::vector<int64_t>{1, 7, 101, 257} : std::vector<int64_t>{1, 101};
    for (const int64_t t : lengths) {
      test_training({t, 2, 2, dim, 0, scale, 0, nullptr}, t);
      test_training({t, 6, 2, dim, 0, scale, 0, nullptr}, 40);
    }
    test_training({all ? 200 : 70, 3, 1, dim, 5, scale, 0, nullptr}, 200);
    if (all) {
      test_training({260, 2, 1, dim, 100, scale, 0, nullptr}, 150);
      test_training({300, 2, 1, dim, 0, scale, 0, nullptr}, 1);
    }
    const std::vector<int64_t> queries = all ? std::vector<int64_t>{1, 5, 130} : std::vector<int64_t>{1, 5};
    for (const int64_t t : queries) {
      for (const int64_t past : {0, 1, 211}) {
        test_decode({t, 4, 2, dim, 0, scale, 0, nullptr}, past);
        test_decode({t, 4, 2, dim, 100, scale, 0, nullptr}, past);
        test_decode({t, 4, 2, dim, 3, scale, 0, nullptr}, past);  // late queries see nothing of the cache
      }
    }
  }
  test_training({101, 2, 1, 512, 0, 1.f / 16, 0, nullptr}, 101);
  test_decode({5, 2, 1, 512, 0, 1.f / 16, 0, nullptr}, 211);
  for (const int64_t t : {1, 101}) {
    test_training({t, 6, 2, 16, 0, 0.7f, 2.5f, nullptr}, 40);
    test_training({t, 6, 2, 16, 0, 0.25f, 0, sinks.data()}, 40);
    test_training({t, 6, 2, 16, 5, 0.25f, 1.5f, sinks.data()}, t);
    test_decode({t, 6, 2, 16, 0, 0.7f, 2.5f, nullptr}, 100);
    test_decode({t, 6, 2, 16, 5, 0.25f, 1.5f, sinks.data()}, 3);
  }
  test_decode({1, 14, 2, 64, 0, 0.125f, 0, nullptr}, 1500);  // keys in parts, heads in fours and threes
  test_kv_store();
  return finish();
}
