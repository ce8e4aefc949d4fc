#include "runtime/kernels/attention/attention_few.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/attention/softmax_row.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Keys whose scores are computed before their values are added up.
constexpr int64_t kKeys = 128;
// The keys of a token are divided into parts, which threads share: as many whatever the number of threads, so that the
// sums do not depend on it.
constexpr int64_t kMostParts = 8;
// Query heads that read a key together, and vectors of values that they add up at a time: as many sums as there are
// registers for.
constexpr int kMostHeads = 4;
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kSums = 12;
#else
constexpr int kSums = 16;
#endif

// Tokens whose rows are asked for ahead: a head's parts of consecutive rows are too far apart for the CPU's
// prefetchers.
constexpr int64_t kAhead = 16, kLine = 64;

[[gnu::always_inline]] inline void prefetch_ahead(const KvHead& head, int64_t token, int64_t bytes) {
  const uint8_t* row = head.codes + (token + kAhead) * head.row_bytes;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
}

int64_t part_keys(int64_t keys) { return round_up(ceil_div(keys, kMostParts), kKeys); }

// What one head sums up over a part of the keys.
struct Partial {
  float* o;        // [dim], sum of e^(score - maximum) v
  float* maximum;  // of the scores
  float* total;    // sum of e^(score - maximum)

  static int64_t floats(int64_t dim) { return dim + 2; }
  Partial(float* base, int64_t dim) : o(base), maximum(base + dim), total(base + dim + 1) {}
};

// scores[g][j] of keys [first, first + keys) for the queries q [kHeads, dim].
template <KvFormat kFormat, int kHeads>
void score_keys(const float* q, const KvHead& k, int64_t first, int64_t keys, int64_t dim, float factor,
                float (*scores)[kKeys]) {
  for (int64_t j = 0; j < keys; ++j) {
    prefetch_ahead(k, first + j, dim * kv_bytes(kFormat));
    Vec sums[kHeads] = {};
    for (int64_t i = 0; i < dim; i += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, dim - i);
      const Vec key = k.load<kFormat>(first + j, i, lanes);
      for (int g = 0; g < kHeads; ++g) sums[g] += load_part(q + g * dim + i, lanes) * key;
    }
    for (int g = 0; g < kHeads; ++g) scores[g][j] = factor * sum(sums[g]);
  }
}

// out[g] = factors[g] out[g] + sum_j p[g][j] v_j.
template <KvFormat kFormat, int kHeads>
void add_values(const float (*p)[kKeys], const KvHead& v, int64_t first, int64_t keys, int64_t dim,
                const float* factors, Partial* out) {
  constexpr int kVecs = kSums / kHeads < 4 ? kSums / kHeads : 4;
  for (int64_t i0 = 0; i0 < dim; i0 += kVecs * kVec) {
    int64_t lanes[kVecs];
    Vec sums[kHeads][kVecs];
    for (int c = 0; c < kVecs; ++c) {
      lanes[c] = std::clamp<int64_t>(dim - i0 - c * kVec, 0, kVec);
      for (int g = 0; g < kHeads; ++g) {
        sums[g][c] = lanes[c] > 0 ? load_part(out[g].o + i0 + c * kVec, lanes[c]) * factors[g] : Vec{};
      }
    }
    const bool whole = i0 + kVecs * kVec <= dim;
    for (int64_t j = 0; j < keys; ++j) {
      if (i0 == 0) prefetch_ahead(v, first + j, dim * kv_bytes(kFormat));
      Vec weights[kHeads];
      for (int g = 0; g < kHeads; ++g) weights[g] = splat(p[g][j]);
      for (int c = 0; c < kVecs; ++c) {
        const Vec value = whole          ? v.load<kFormat>(first + j, i0 + c * kVec, kVec)
                          : lanes[c] > 0 ? v.load<kFormat>(first + j, i0 + c * kVec, lanes[c])
                                         : Vec{};
        for (int g = 0; g < kHeads; ++g) sums[g][c] += weights[g] * value;
      }
    }
    for (int c = 0; c < kVecs; ++c) {
      if (lanes[c] == 0) continue;
      for (int g = 0; g < kHeads; ++g) store_part(out[g].o + i0 + c * kVec, sums[g][c], lanes[c]);
    }
  }
}

// kHeads query heads that share a key, over the keys [begin, end).
template <KvFormat kFormat, int kHeads>
void attend_part(const AttentionShape& s, const float* q, const KvHead& k, const KvHead& v, int64_t begin, int64_t end,
                 Partial* out) {
  for (int g = 0; g < kHeads; ++g) {
    std::fill_n(out[g].o, s.dim, 0.f);
    *out[g].maximum = -std::numeric_limits<float>::infinity();
    *out[g].total = 0.f;
  }
  for (int64_t j0 = begin; j0 < end; j0 += kKeys) {
    const int64_t keys = std::min(kKeys, end - j0);
    float scores[kHeads][kKeys], factors[kHeads];
    score_keys<kFormat, kHeads>(q, k, j0, keys, s.dim, s.scale, scores);
    for (int g = 0; g < kHeads; ++g) {
      if (s.softcap > 0) softcap_row(scores[g], keys, s.softcap);
      const float high = std::max(*out[g].maximum, max_of(scores[g], keys));
      factors[g] = *out[g].total > 0 ? std::exp(*out[g].maximum - high) : 1.f;
      *out[g].maximum = high;
      *out[g].total = *out[g].total * factors[g] + exp_row(scores[g], keys, high);
    }
    add_values<kFormat, kHeads>(scores, v, j0, keys, s.dim, factors, out);
  }
}

template <KvFormat kFormat>
void attend_heads(int64_t heads, const AttentionShape& s, const float* q, const KvHead& k, const KvHead& v,
                  int64_t begin, int64_t end, Partial* out) {
  switch (heads) {
    case 1:
      return attend_part<kFormat, 1>(s, q, k, v, begin, end, out);
    case 2:
      return attend_part<kFormat, 2>(s, q, k, v, begin, end, out);
    case 3:
      return attend_part<kFormat, 3>(s, q, k, v, begin, end, out);
    default:
      return attend_part<kFormat, kMostHeads>(s, q, k, v, begin, end, out);
  }
}

// o [dim] of a head whose parts are `floats` apart; sink may be null.
void combine(float* parts, int64_t count, int64_t floats, int64_t dim, const float* sink, float* o) {
  float maximum = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
  for (int64_t p = 0; p < count; ++p) maximum = std::max(maximum, *Partial(parts + p * floats, dim).maximum);
  float total = sink != nullptr ? std::exp(*sink - maximum) : 0.f;
  std::fill_n(o, dim, 0.f);
  for (int64_t p = 0; p < count; ++p) {
    const Partial part(parts + p * floats, dim);
    const float factor = std::exp(*part.maximum - maximum);
    total += factor * *part.total;
    for (int64_t i = 0; i < dim; ++i) o[i] += factor * part.o[i];
  }
  for (int64_t i = 0; i < dim; ++i) o[i] *= 1.f / total;
}

template <KvFormat kFormat>
void attend(const AttentionShape& s, const float* q, const KvCache& cache, int64_t place, float* o, float* partials) {
  const int64_t group = s.heads / s.kv_heads, floats = Partial::floats(s.dim);
  const int64_t lowest = s.window > 0 ? std::max<int64_t>(0, place + 1 - s.window) : 0;
  const int64_t keys = place + 1 - lowest, step = part_keys(keys), parts = ceil_div(keys, step);
  parallel_for(s.kv_heads * parts, [&](int64_t item) {
    const int64_t head = item / parts, part = item % parts;
    const KvHead k(kFormat, cache.keys, s.kv_heads, s.dim, head), v(kFormat, cache.values, s.kv_heads, s.dim, head);
    const int64_t begin = lowest + part * step, end = std::min(begin + step, place + 1);
    for (int64_t g = 0; g < group; g += kMostHeads) {
      const int64_t first = head * group + g, count = std::min<int64_t>(kMostHeads, group - g);
      const auto at = [&](int64_t i) {
        return Partial(partials + ((first + std::min(i, count - 1)) * kMostParts + part) * floats, s.dim);
      };
      Partial out[kMostHeads] = {at(0), at(1), at(2), at(3)};
      attend_heads<kFormat>(count, s, q + first * s.dim, k, v, begin, end, out);
    }
  });
  for (int64_t head = 0; head < s.heads; ++head) {
    combine(partials + head * kMostParts * floats, parts, floats, s.dim, s.sinks != nullptr ? s.sinks + head : nullptr,
            o + head * s.dim);
  }
}

int64_t partial_floats(const AttentionShape& s) { return s.heads * kMostParts * Partial::floats(s.dim); }

}  // namespace

void attend_few(const AttentionShape& shape, const float* q, const KvCache& cache, int64_t past, float* o,
                Scratch scratch) {
  float* partials = scratch.take(partial_floats(shape));
  const int64_t width = shape.heads * shape.dim;
  for (int64_t i = 0; i < shape.t; ++i, q += width, o += width) {
    switch (cache.format) {
      case KvFormat::kFloat32:
        attend<KvFormat::kFloat32>(shape, q, cache, past + i, o, partials);
        break;
      case KvFormat::kFloat16:
        attend<KvFormat::kFloat16>(shape, q, cache, past + i, o, partials);
        break;
      case KvFormat::kInt8:
        attend<KvFormat::kInt8>(shape, q, cache, past + i, o, partials);
        break;
    }
  }
}

size_t attend_few_scratch_bytes(const AttentionShape& shape) {
  ScratchSize size;
  size.take(static_cast<size_t>(partial_floats(shape)));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
