#include "runtime/core/generator.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/error.h"

namespace mft {
namespace {

int64_t sample(float* logits, int64_t n, double temperature, Random& random) {
  const int64_t best = std::max_element(logits, logits + n) - logits;
  if (temperature == 0) return best;
  double sum = 0;
  const double top = logits[best];
  for (int64_t i = 0; i < n; ++i) sum += std::exp((logits[i] - top) / temperature);
  double left = random.uniform() * sum;
  for (int64_t i = 0; i < n; ++i) {
    left -= std::exp((logits[i] - top) / temperature);
    if (left <= 0) return i;
  }
  return best;
}

}  // namespace

Generator::Generator(Model& model, int64_t prompt_tokens, double temperature, uint64_t seed)
    : model_(model), temperature_(temperature), random_(seed, 0) {
  if (!(temperature >= 0) || !std::isfinite(temperature)) fail("temp ", temperature, ": must not be negative");
  const Bundle& b = model.bundle();
  const size_t cache = b.units.size() * static_cast<size_t>(b.max_seq_len * model.key_size()) * sizeof(float);
  keys_ = Buffer(cache);  // pages are touched as tokens come; MLP units' parts never
  values_ = Buffer(cache);
  activations_ = Buffer(2 * model_.activation_bytes(prompt_tokens));
  logits_ = Buffer(static_cast<size_t>(b.vocab_size) * sizeof(float));
}

int64_t Generator::next(const std::vector<int64_t>& tokens) {
  const Bundle& b = model_.bundle();
  const int64_t t = static_cast<int64_t>(tokens.size());
  if (t == 0) fail("the prompt is empty");
  if (2 * model_.activation_bytes(t) > activations_.size()) {
    fail(t, " tokens are more than the prompt that this generator was made for");
  }
  if (past_ + t > b.max_seq_len) fail("prompt and answer exceed the bundle's maximum of ", b.max_seq_len, " tokens");
  std::vector<int64_t> positions(tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = past_ + static_cast<int64_t>(i);
  const size_t cache = static_cast<size_t>(b.max_seq_len * model_.key_size());
  float* x = activations_.floats();
  float* y = x + t * b.hidden_size;
  model_.embed(tokens.data(), t, x);
  for (size_t u = 0; u < b.units.size(); ++u) {
    model_.decode(u, x, positions.data(), t, keys_.floats() + u * cache, values_.floats() + u * cache, y);
    std::swap(x, y);
  }
  past_ += t;
  model_.logits(x + (t - 1) * b.hidden_size, 1, logits_.floats());
  return sample(logits_.floats(), b.vocab_size, temperature_, random_);
}

}  // namespace mft
