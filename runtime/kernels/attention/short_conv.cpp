#include "runtime/kernels/attention/short_conv.h"

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kTokens = 16;

/// Parts of row t.
struct Row {
  const float *b, *c, *x;
  Row(const float* bcx, int64_t t, int64_t d) : b(bcx + 3 * t * d), c(b + d), x(c + d) {}
};

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// u of token `t` in the channels from `i` on; `state` holds those before the first token.
Vec earlier(const ShortConvShape& s, const float* bcx, const float* state, int64_t t, int64_t i, int64_t lanes) {
  if (t < 0) return load_part(state + (s.taps - 1 + t) * s.d + i, lanes);
  const Row row(bcx, t, s.d);
  return load_part(row.b + i, lanes) * load_part(row.x + i, lanes);
}

/// The convolution of token t, in the channels from `i` on.
Vec convolved(const ShortConvShape& s, const float* bcx, const float* taps, const float* state,
              const int64_t* positions, int64_t t, int64_t i, int64_t lanes) {
  Vec sum{};
  for (int64_t j = 0; j <= least(s.taps - 1, positions[t]); ++j) {
    sum += load_part(taps + (s.taps - 1 - j) * s.d + i, lanes) * earlier(s, bcx, state, t - j, i, lanes);
  }
  return sum;
}

/// f(t, i, lanes) for every token and `lanes` of its channels from `i` on.
template <typename F>
void each(const ShortConvShape& s, const F& f) {
  parallel_ranges(s.t, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < s.d; i += kVec) f(t, i, least(kVec, s.d - i));
    }
  });
}

}  // namespace

void short_conv(const ShortConvShape& s, const float* bcx, const float* taps, const int64_t* positions, float* y) {
  short_conv_decode(s, bcx, taps, nullptr, positions, y, nullptr);
}

void short_conv_backward(const ShortConvShape& s, const float* dy, const float* bcx, const float* taps,
                         const int64_t* positions, float* dbcx) {
  each(s, [&](int64_t t, int64_t i, int64_t lanes) {
    Vec du{};
    for (int64_t j = 0; j < least(s.taps, s.t - t); ++j) {
      if (positions[t + j] < j) continue;  // another row
      const Vec dv = load_part(dy + (t + j) * s.d + i, lanes) * load_part(Row(bcx, t + j, s.d).c + i, lanes);
      du += load_part(taps + (s.taps - 1 - j) * s.d + i, lanes) * dv;
    }
    const Row row(bcx, t, s.d);
    float* out = dbcx + 3 * t * s.d + i;
    store_part(out, du * load_part(row.x + i, lanes), lanes);
    store_part(out + s.d, load_part(dy + t * s.d + i, lanes) * convolved(s, bcx, taps, nullptr, positions, t, i, lanes),
               lanes);
    store_part(out + 2 * s.d, du * load_part(row.b + i, lanes), lanes);
  });
}

void short_conv_decode(const ShortConvShape& s, const float* bcx, const float* taps, const float* state,
                       const int64_t* positions, float* y, float* next) {
  each(s, [&](int64_t t, int64_t i, int64_t lanes) {
    const Vec c = load_part(Row(bcx, t, s.d).c + i, lanes);
    store_part(y + t * s.d + i, c * convolved(s, bcx, taps, state, positions, t, i, lanes), lanes);
  });
  if (next == nullptr) return;
  for (int64_t j = 0; j < s.taps - 1; ++j) {
    for (int64_t i = 0; i < s.d; i += kVec) {
      const int64_t lanes = least(kVec, s.d - i);
      store_part(next + j * s.d + i, earlier(s, bcx, state, s.t - (s.taps - 1) + j, i, lanes), lanes);
    }
  }
}

}  // namespace mft::MFT_ISA
