#include "runtime/kernels/linear/experts.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/glu.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/platform/sweep.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr float kSumEps = 1e-6f;  // added to sums of sigmoids

// Which experts the tokens chose, and the tokens of each expert.
struct Routes {
  float* scores;    // [T, experts]
  float* weights;   // [T, top_k], of the chosen ones
  int32_t* chosen;  // [T, top_k]
  int32_t* begins;  // [experts + 1], of each expert's part of `slots`
  int32_t* slots;   // [T top_k], token x top_k + which choice, by expert

  static void add(const ExpertsShape& s, ScratchSize& size) {
    size.take(s.t * s.experts);
    for (int i = 0; i < 3; ++i) size.take(s.t * s.top_k);
    size.take(s.experts + 1);
  }

  Routes(const ExpertsShape& s, Scratch& scratch) {
    scores = scratch.take(s.t * s.experts);
    weights = scratch.take(s.t * s.top_k);
    chosen = reinterpret_cast<int32_t*>(scratch.take(s.t * s.top_k));
    slots = reinterpret_cast<int32_t*>(scratch.take(s.t * s.top_k));
    begins = reinterpret_cast<int32_t*>(scratch.take(s.experts + 1));
  }

  int64_t tokens(int64_t expert) const { return begins[expert + 1] - begins[expert]; }
};

void score(const ExpertsShape& s, const float* logits, float* scores) {
  if (s.sigmoid) {
    for (int64_t e = 0; e < s.experts; ++e) scores[e] = 1.f / (1.f + std::exp(-logits[e]));
    return;
  }
  const float most = *std::max_element(logits, logits + s.experts);
  float sum = 0.f;
  for (int64_t e = 0; e < s.experts; ++e) sum += scores[e] = std::exp(logits[e] - most);
  for (int64_t e = 0; e < s.experts; ++e) scores[e] /= sum;
}

// The chosen experts of one token, best first, and their weights.
void choose(const ExpertsShape& s, const float* scores, const float* bias, int32_t* chosen, float* weights) {
  float sum = s.sigmoid ? kSumEps : 0.f;
  for (int64_t k = 0; k < s.top_k; ++k) {
    int64_t best = -1;
    float most = 0.f;
    for (int64_t e = 0; e < s.experts; ++e) {
      const float value = scores[e] + (bias != nullptr ? bias[e] : 0.f);
      // Not below, so that a score that is not a number is chosen too, and the loss shows it.
      if (std::find(chosen, chosen + k, e) == chosen + k && (best < 0 || value > most)) best = e, most = value;
    }
    chosen[k] = static_cast<int32_t>(best);
    weights[k] = scores[best];
    sum += scores[best];
  }
  for (int64_t k = 0; k < s.top_k; ++k) weights[k] *= s.scale / (s.normalize ? sum : 1.f);
}

void route(const ExpertsShape& s, const ExpertsInput& in, const Routes& routes) {
  for (int64_t t = 0; t < s.t; ++t) {
    score(s, in.logits + t * s.experts, routes.scores + t * s.experts);
    choose(s, routes.scores + t * s.experts, in.bias, routes.chosen + t * s.top_k, routes.weights + t * s.top_k);
  }
  std::fill_n(routes.begins, s.experts + 1, 0);
  for (int64_t i = 0; i < s.t * s.top_k; ++i) ++routes.begins[routes.chosen[i] + 1];
  for (int64_t e = 0; e < s.experts; ++e) routes.begins[e + 1] += routes.begins[e];
  for (int64_t e = 0; e < s.experts; ++e) {
    int32_t* slot = routes.slots + routes.begins[e];
    if (routes.tokens(e) == 0) continue;
    for (int64_t i = 0; i < s.t * s.top_k; ++i) {
      if (routes.chosen[i] == e) *slot++ = static_cast<int32_t>(i);
    }
  }
}

// The rows of one expert's part of a weight.
PackedWeight part_of(const PackedWeight& w, int64_t expert, int64_t rows) {
  PackedWeight part = w;
  const int64_t panels = expert * rows / kPanelRows;
  part.data += panels * (w.cols / w.format.group) * static_cast<int64_t>(w.format.block_bytes());
  part.rows = rows;
  return part;
}

// The weights of an expert lie apart, and the mapping is read without reading ahead of what is used.
void read_experts_ahead(const ExpertsShape& s, const ExpertsInput& in, const Routes& routes) {
  for (int64_t e = 0; e < s.experts; ++e) {
    if (routes.tokens(e) == 0) continue;
    read_ahead(part_of(in.gate_up, e, 2 * s.inner).data, part_of(in.gate_up, e + 1, 2 * s.inner).data);
    read_ahead(part_of(in.down, e, s.hidden).data, part_of(in.down, e + 1, s.hidden).data);
  }
}

void gather(const ExpertsShape& s, const float* x, const int32_t* slots, int64_t n, float* rows) {
  for (int64_t i = 0; i < n; ++i) std::copy_n(x + slots[i] / s.top_k * s.hidden, s.hidden, rows + i * s.hidden);
}

// to[token] += factors[slot] rows[i]; without factors, 1.
void scatter(const ExpertsShape& s, const float* rows, const float* factors, const int32_t* slots, int64_t n,
             float* to) {
  for (int64_t i = 0; i < n; ++i) {
    const float factor = factors != nullptr ? factors[slots[i]] : 1.f;
    float* out = to + slots[i] / s.top_k * s.hidden;
    for (int64_t j = 0; j < s.hidden; ++j) out[j] += factor * rows[i * s.hidden + j];
  }
}

// What one expert computes: x and out [tokens, hidden], gate_up [tokens, 2 inner], inner [tokens, inner].
struct Inner {
  float* x;
  float* gate_up;
  float* inner;
  float* out;

  static void add(const ExpertsShape& s, ScratchSize& size) {
    for (const int64_t width : {s.hidden, 2 * s.inner, s.inner, s.hidden}) size.take(s.t * width);
  }
  Inner(const ExpertsShape& s, Scratch& scratch)
      : x(scratch.take(s.t * s.hidden)),
        gate_up(scratch.take(s.t * 2 * s.inner)),
        inner(scratch.take(s.t * s.inner)),
        out(scratch.take(s.t * s.hidden)) {}
};

// LoRA of one expert's part of a matrix, whose B is copied from all experts' together; and its gradients.
class ExpertLora {
 public:
  static void add(const ExpertsShape& s, int64_t rows, ScratchSize& size) {
    for (int i = 0; i < 2; ++i) size.take(rows * s.rank);
  }
  ExpertLora(const ExpertsShape& s, const ExpertsLora& lora, float scale, int64_t rows, int64_t columns,
             Scratch& scratch)
      : s_(s), lora_(lora), rows_(rows), columns_(columns) {
    b_ = scratch.take(rows * s.rank);
    b_gradient_ = scratch.take(rows * s.rank);
    of_expert_ = {nullptr, b_, s.rank, scale};
  }

  // Null without LoRA.
  const Lora* of(int64_t expert) {
    if (s_.rank == 0) return nullptr;
    of_expert_.a = lora_.a + expert * s_.rank * columns_;
    for (int64_t i = 0; i < rows_ * s_.rank; ++i) b_[i] = lora_.b[i * s_.experts + expert];
    return &of_expert_;
  }

  void clear(const ExpertsLoraGradients& gradients) const {
    if (gradients.a != nullptr) std::fill_n(gradients.a, s_.experts * s_.rank * columns_, 0.f);
    std::fill_n(gradients.b, s_.experts * s_.rank * rows_, 0.f);
  }

  // Where the gradient of an expert's A and B are written; `store` brings that of B to its place.
  float* a_gradient(const ExpertsLoraGradients& gradients, int64_t expert) const {
    return gradients.a == nullptr ? nullptr : gradients.a + expert * s_.rank * columns_;
  }
  float* b_gradient() const { return s_.rank == 0 ? nullptr : b_gradient_; }
  void store(const ExpertsLoraGradients& gradients, int64_t expert) const {
    for (int64_t i = 0; i < rows_ * s_.rank; ++i) gradients.b[i * s_.experts + expert] = b_gradient_[i];
  }

 private:
  const ExpertsShape& s_;
  ExpertsLora lora_;
  int64_t rows_, columns_;
  float* b_;
  float* b_gradient_;
  Lora of_expert_;
};

void compute_inner(Compute compute, const ExpertsShape& s, const ExpertsInput& in, int64_t expert, const Lora* lora,
                   int64_t n, const Inner& of, Scratch scratch) {
  linear_forward(compute, of.x, n, part_of(in.gate_up, expert, 2 * s.inner), lora, false, of.gate_up, scratch);
  for (int64_t i = 0; i < n; ++i) {
    const float* gate = of.gate_up + i * 2 * s.inner;
    glu(Glu::kSwiglu, gate, gate + s.inner, s.inner, of.inner + i * s.inner);
  }
}

// From the gradients of a token's weights to those of its logits.
void backward_of_scores(const ExpertsShape& s, const float* scores, const int32_t* chosen, const float* weights,
                        const float* dweights, float* dlogits) {
  std::fill_n(dlogits, s.experts, 0.f);
  float along = 0.f, sum = s.sigmoid ? kSumEps : 0.f;
  for (int64_t k = 0; k < s.top_k; ++k) {
    along += dweights[k] * weights[k];
    sum += scores[chosen[k]];
  }
  if (!s.sigmoid && s.normalize) {  // a softmax of the chosen ones alone
    for (int64_t k = 0; k < s.top_k; ++k) dlogits[chosen[k]] = weights[k] * (dweights[k] - along / s.scale);
    return;
  }
  // Of the scores.
  for (int64_t k = 0; k < s.top_k; ++k) {
    dlogits[chosen[k]] = s.normalize ? (s.scale * dweights[k] - along) / sum : s.scale * dweights[k];
  }
  if (s.sigmoid) {
    for (int64_t k = 0; k < s.top_k; ++k) dlogits[chosen[k]] *= scores[chosen[k]] * (1.f - scores[chosen[k]]);
    return;
  }
  float mean = 0.f;
  for (int64_t e = 0; e < s.experts; ++e) mean += dlogits[e] * scores[e];
  for (int64_t e = 0; e < s.experts; ++e) dlogits[e] = scores[e] * (dlogits[e] - mean);
}

}  // namespace

void experts_forward(Compute compute, const ExpertsShape& s, const ExpertsInput& in, float* y, Scratch scratch) {
  const Routes routes(s, scratch);
  const Inner of(s, scratch);
  ExpertLora gate_up(s, in.gate_up_lora, in.lora_scale, 2 * s.inner, s.hidden, scratch);
  ExpertLora down(s, in.down_lora, in.lora_scale, s.hidden, s.inner, scratch);
  route(s, in, routes);
  read_experts_ahead(s, in, routes);
  std::fill_n(y, s.t * s.hidden, 0.f);
  for (int64_t e = 0; e < s.experts; ++e) {
    const int64_t n = routes.tokens(e);
    if (n == 0) continue;
    const int32_t* slots = routes.slots + routes.begins[e];
    gather(s, in.x, slots, n, of.x);
    compute_inner(compute, s, in, e, gate_up.of(e), n, of, scratch);
    linear_forward(compute, of.inner, n, part_of(in.down, e, s.hidden), down.of(e), false, of.out, scratch);
    scatter(s, of.out, routes.weights, slots, n, y);
  }
}

void experts_backward(Compute compute, const ExpertsShape& s, const ExpertsInput& in, const float* dy, float* dx,
                      float* dlogits, const ExpertsLoraGradients& gate_up_gradients,
                      const ExpertsLoraGradients& down_gradients, Scratch scratch) {
  const Routes routes(s, scratch);
  const Inner of(s, scratch), d(s, scratch);  // values, and gradients
  ExpertLora gate_up(s, in.gate_up_lora, in.lora_scale, 2 * s.inner, s.hidden, scratch);
  ExpertLora down(s, in.down_lora, in.lora_scale, s.hidden, s.inner, scratch);
  float* weighted = scratch.take(s.rank > 0 ? s.t * s.inner : 0);  // `inner`, times the tokens' weights
  if (s.rank > 0) gate_up.clear(gate_up_gradients), down.clear(down_gradients);
  float* dweights = scratch.take(s.t * s.top_k);
  route(s, in, routes);
  read_experts_ahead(s, in, routes);
  std::fill_n(dx, s.t * s.hidden, 0.f);
  for (int64_t e = 0; e < s.experts; ++e) {
    const int64_t n = routes.tokens(e);
    if (n == 0) continue;
    const int32_t* slots = routes.slots + routes.begins[e];
    gather(s, in.x, slots, n, of.x);
    gather(s, dy, slots, n, d.out);
    const Lora* lora = gate_up.of(e);
    compute_inner(compute, s, in, e, lora, n, of, scratch);
    for (int64_t i = 0; s.rank > 0 && i < n; ++i) {
      const float weight = routes.weights[slots[i]];
      for (int64_t j = 0; j < s.inner; ++j) weighted[i * s.inner + j] = weight * of.inner[i * s.inner + j];
    }
    linear_backward(compute, d.out, weighted, n, part_of(in.down, e, s.hidden), down.of(e), d.inner,
                    down.a_gradient(down_gradients, e), down.b_gradient(), scratch);
    for (int64_t i = 0; i < n; ++i) {
      float* dinner = d.inner + i * s.inner;
      dweights[slots[i]] = row_dot(dinner, of.inner + i * s.inner, s.inner);
      for (int64_t j = 0; j < s.inner; ++j) dinner[j] *= routes.weights[slots[i]];
      const float* gate = of.gate_up + i * 2 * s.inner;
      float* dgate = d.gate_up + i * 2 * s.inner;
      glu_backward(Glu::kSwiglu, dinner, gate, gate + s.inner, s.inner, dgate, dgate + s.inner);
    }
    linear_backward(compute, d.gate_up, of.x, n, part_of(in.gate_up, e, 2 * s.inner), lora, d.x,
                    gate_up.a_gradient(gate_up_gradients, e), gate_up.b_gradient(), scratch);
    scatter(s, d.x, nullptr, slots, n, dx);
    if (s.rank > 0) gate_up.store(gate_up_gradients, e), down.store(down_gradients, e);
  }
  for (int64_t t = 0; t < s.t; ++t) {
    backward_of_scores(s, routes.scores + t * s.experts, routes.chosen + t * s.top_k, routes.weights + t * s.top_k,
                       dweights + t * s.top_k, dlogits + t * s.experts);
  }
}

size_t experts_scratch_bytes(Compute compute, const ExpertsShape& s) {
  ScratchSize size;
  Routes::add(s, size);
  Inner::add(s, size);
  Inner::add(s, size);
  ExpertLora::add(s, 2 * s.inner, size);
  ExpertLora::add(s, s.hidden, size);
  size.take(s.rank > 0 ? s.t * s.inner : 0);
  size.take(s.t * s.top_k);
  size.take_bytes(std::max(linear_scratch_bytes(compute, s.t, 2 * s.inner, s.hidden, s.rank),
                           linear_scratch_bytes(compute, s.t, s.hidden, s.inner, s.rank)));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
