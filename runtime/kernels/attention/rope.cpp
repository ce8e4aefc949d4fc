#include "runtime/kernels/attention/rope.h"

#include <algorithm>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kTokens = 16;

typedef double VecD __attribute__((vector_size(kVec * 8)));
typedef int64_t VecL __attribute__((vector_size(kVec * 8)));

// About 1 ulp for |x| < 1e9: the angle is brought to an eighth of a turn in float64.
void sine_and_cosine(Vec x, Vec* sine, Vec* cosine) {
  const VecD angle = __builtin_convertvector(x, VecD);
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves the nearest integer in the low bits
  const VecD shifted = angle * 0.6366197723675814 + kMagic;
  const Vec r = __builtin_convertvector(angle - (shifted - kMagic) * 1.5707963267948966, Vec);
  const VecI quarter = __builtin_convertvector((VecL)shifted & 3, VecI);
  const Vec z = r * r;
  Vec s = z * -1.9515295891e-4f + 8.3321608736e-3f;
  s = (s * z - 1.6666654611e-1f) * z * r + r;
  Vec c = z * 2.443315711809948e-5f - 1.388731625493765e-3f;
  c = (c * z + 4.166664568298827e-2f) * z * z - z * 0.5f + 1.f;
  const VecI odd = (quarter & 1) != 0;
  *sine = odd ? c : s;
  *cosine = odd ? s : c;
  *sine = (quarter & 2) != 0 ? -*sine : *sine;
  *cosine = ((quarter + 1) & 2) != 0 ? -*cosine : *cosine;
}

// Pair j of a head is at j * step and at j * step + apart.
inline void rotate(const float* in, const float* cosine, const float* sine, int64_t half, int64_t step, int64_t apart,
                   float* out) {
  for (int64_t j = 0; j < half; ++j) {
    const float low = in[j * step];
    const float high = in[j * step + apart];
    out[j * step] = low * cosine[j] - high * sine[j];
    out[j * step + apart] = high * cosine[j] + low * sine[j];
  }
}

}  // namespace

void rope(const RopeShape& shape, const float* x, const int64_t* positions, const float* inv_freq, float* y,
          Scratch scratch) {
  const int64_t t = shape.t, heads = shape.heads, dim = shape.dim, half = shape.half;
  const float factor = shape.factor, sign = shape.inverse ? -factor : factor;
  float* tables = scratch.take(thread_count() * 2 * half);
  parallel_for_worker(ceil_div(t, kTokens), [&](int64_t block, int64_t worker) {
    float* cosine = tables + worker * 2 * half;
    float* sine = cosine + half;
    for (int64_t i = block * kTokens; i < std::min(t, (block + 1) * kTokens); ++i) {
      const float position = static_cast<float>(positions[i]);
      for (int64_t j = 0; j < half; j += kVec) {
        const int64_t lanes = std::min<int64_t>(kVec, half - j);
        Vec s, c;
        sine_and_cosine(load_part(inv_freq + j, lanes) * position, &s, &c);
        store_part(cosine + j, c * factor, lanes);
        store_part(sine + j, s * sign, lanes);
      }
      for (int64_t head = 0; head < heads; ++head) {
        const float* in = x + (i * heads + head) * dim;
        float* out = y + (i * heads + head) * dim;
        if (shape.interleaved) {
          rotate(in, cosine, sine, half, 2, 1, out);
        } else {
          rotate(in, cosine, sine, half, 1, half, out);
        }
        if (out != in) std::copy(in + 2 * half, in + dim, out + 2 * half);
      }
    }
  });
}

size_t rope_scratch_bytes(int64_t half) {
  ScratchSize size;
  size.take(thread_count() * 2 * half);
  return size.bytes;
}

}  // namespace mft::MFT_ISA
