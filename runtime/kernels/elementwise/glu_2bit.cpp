#include "runtime/kernels/elementwise/glu_2bit.h"

#include <algorithm>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 16384;  // elements

// Found by the paper's authors with simulated annealing; mobile_ft/model/ops/glu_2bit.py has the same.
constexpr ReluCombination kReSilu2 = {{-0.04060357190528599, 1.080925428529668, -0.040321856624382146},
                                      {-6.3050461001646445, -0.0008684942046214787, 6.325815242089708}};
constexpr ReluCombination kReGelu2 = {{-0.04922261145617846, 1.0979632065417297, -0.048740595085551286},
                                      {-3.1858810036855245, -0.001178821281161997, 3.190832613414926}};

// Where the codes of a vector's lanes lie in its kVec / 4 bytes, read as one little-endian number.
#if defined(__AVX512F__)
constexpr VecI kShift = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#elif defined(__AVX2__)
constexpr VecI kShift = {0, 2, 4, 6, 8, 10, 12, 14};
#else
constexpr VecI kShift = {0, 2, 4, 6};
#endif

// The codes of `count` lanes; lanes must be 0 past it.
void store_codes(uint8_t* p, VecI codes, int64_t count) {
  codes <<= kShift;
  int32_t bits = 0;
  for (int lane = 0; lane < kVec; ++lane) bits |= codes[lane];
  for (int64_t i = 0; i < glu_2bit_code_bytes(count); ++i) p[i] = static_cast<uint8_t>(bits >> (8 * i));
}

VecI load_codes(const uint8_t* p, int64_t count) {
  int32_t bits = 0;
  for (int64_t i = 0; i < glu_2bit_code_bytes(count); ++i) bits |= p[i] << (8 * i);
  return ((bits - VecI{}) >> kShift) & 3;
}

// f(element, byte of codes, count) for runs of at most kVec elements that do not cross rows.
template <typename F>
void for_runs(int64_t t, int64_t d, const F& f) {
  parallel_ranges(t, std::max<int64_t>(1, kStep / std::max<int64_t>(1, d)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < d; i += kVec) {
        f(row * d + i, row * glu_2bit_code_bytes(d) + i / 4, std::min<int64_t>(kVec, d - i));
      }
    }
  });
}

template <Activation (*act)(Vec)>
void forward(const ReluCombination& h, const float* gate, const float* up, int64_t t, int64_t d, float* out,
             uint8_t* codes) {
  const Vec c0 = splat(static_cast<float>(h.c[0]));
  const Vec c1 = splat(static_cast<float>(h.c[1]));
  const Vec c2 = splat(static_cast<float>(h.c[2]));
  for_runs(t, d, [&](int64_t i, int64_t byte, int64_t count) {
    const Vec g = load_part(gate + i, count);
    store_part(out + i, act(g).value * load_part(up + i, count), count);
    VecI code = -((g > c0) + (g > c1) + (g > c2));  // true is -1
    for (int64_t lane = count; lane < kVec; ++lane) code[lane] = 0;
    store_codes(codes + byte, code, count);
  });
}

}  // namespace

void glu_2bit(Glu kind, const float* gate, const float* up, int64_t t, int64_t d, float* out, uint8_t* codes) {
  if (kind == Glu::kSwiglu) {
    forward<silu>(kReSilu2, gate, up, t, d, out, codes);
  } else {
    forward<gelu_tanh>(kReGelu2, gate, up, t, d, out, codes);
  }
}

void glu_2bit_backward(Glu kind, const float* dout, const float* up, const float* y, const uint8_t* codes, int64_t t,
                       int64_t d, float* dgate, float* dup) {
  const ReluCombination& h = kind == Glu::kSwiglu ? kReSilu2 : kReGelu2;
  float slopes[16] = {};  // by code
  double slope = 0;
  for (int i = 0; i < 3; ++i) slopes[i + 1] = static_cast<float>(slope += h.a[i]);

  for_runs(t, d, [&](int64_t i, int64_t byte, int64_t count) {
    const Vec grad = load_part(dout + i, count);
    const Vec u = load_part(up + i, count);
    store_part(dgate + i, grad * u * lookup16(slopes, load_codes(codes + byte, count)), count);
    store_part(dup + i, u == 0.f ? Vec{} : grad * (load_part(y + i, count) / u), count);
  });
}

}  // namespace mft::MFT_ISA
