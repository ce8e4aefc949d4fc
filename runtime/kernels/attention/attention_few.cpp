#include "runtime/kernels/attention/attention_few.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/attention/softmax_row.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kKeys = 128;  // whose scores are computed before their values are added up

// o = factor o + sum_j p[j] v_j, with rows of v ldv apart.
void add_values(const float* p, int64_t keys, const float* v, int64_t ldv, int64_t dim, float factor, float* o) {
  for (int64_t i = 0; i < dim; i += kVec) {
    const int64_t lanes = std::min<int64_t>(kVec, dim - i);
    Vec total = load_part(o + i, lanes) * factor;
    for (int64_t j = 0; j < keys; ++j) total += splat(p[j]) * load_part(v + j * ldv + i, lanes);
    store_part(o + i, total, lanes);
  }
}

// One query of one head, which sees the places [lowest, highest). The spans are the head's; sink may be null.
void attend(const AttentionShape& s, const float* q, int64_t lowest, int64_t highest, const KeySpan* spans, int count,
            const float* sink, float* o) {
  const int64_t ldk = s.kv_heads * s.dim;
  float maximum = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
  float total = sink != nullptr ? 1.f : 0.f;
  std::fill_n(o, s.dim, 0.f);
  for (const KeySpan* span = spans; span < spans + count; ++span) {
    const int64_t end = std::min(span->end, highest);
    for (int64_t j0 = std::max(span->begin, lowest); j0 < end; j0 += kKeys) {
      const int64_t keys = std::min(kKeys, end - j0), at = (j0 - span->begin) * ldk;
      float scores[kKeys];
      for (int64_t j = 0; j < keys; ++j) scores[j] = s.scale * row_dot(q, span->k + at + j * ldk, s.dim);
      if (s.softcap > 0) softcap_row(scores, keys, s.softcap);
      const float high = std::max(maximum, max_of(scores, keys));
      const float factor = total > 0 ? std::exp(maximum - high) : 1.f;
      maximum = high;
      total = total * factor + exp_row(scores, keys, maximum);
      add_values(scores, keys, span->v + at, ldk, s.dim, factor, o);
    }
  }
  for (int64_t i = 0; i < s.dim; ++i) o[i] *= 1.f / total;
}

}  // namespace

void attend_few(const AttentionShape& shape, const float* q, const KeySpan* spans, int count, int64_t past, float* o) {
  const int64_t group = shape.heads / shape.kv_heads;
  parallel_for(shape.t * shape.heads, [&](int64_t item) {
    const int64_t head = item % shape.heads, place = past + item / shape.heads, kv_at = head / group * shape.dim;
    KeySpan mine[2];
    for (int i = 0; i < count; ++i) mine[i] = {spans[i].k + kv_at, spans[i].v + kv_at, spans[i].begin, spans[i].end};
    const int64_t lowest = shape.window > 0 ? std::max<int64_t>(0, place + 1 - shape.window) : 0;
    attend(shape, q + item * shape.dim, lowest, place + 1, mine, count,
           shape.sinks != nullptr ? shape.sinks + head : nullptr, o + item * shape.dim);
  });
}

}  // namespace mft::MFT_ISA
