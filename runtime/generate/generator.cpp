#include "runtime/generate/generator.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/generate/sampling.h"

namespace mft {
namespace {

/// While it lives, the model computes as answers do; then again as before, since a trainer may use it.
class Answering {
 public:
  Answering(Model& model, Compute compute, const HalfLora& lora) : model_(model), before_(model.compute()) {
    model.use_compute(compute);
    model.use_half_lora(lora);
  }
  ~Answering() {
    model_.use_compute(before_);
    model_.use_half_lora({});
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  Model& model_;
  const Compute before_;
};

Compute compute_of(const GenerateConfig& config, const Model& model) {
  const Compute wanted = config.compute == ComputeChoice::kFloat32 ? Compute::kFloat32 : Compute::kInt8;
  if (model.has_room_for(wanted)) return wanted;
  if (config.compute == ComputeChoice::kInt8) fail("compute int8: a trainer prepared this model for float32 alone");
  return Compute::kFloat32;
}

}  // namespace

int64_t Generator::prepared_tokens(const Bundle& bundle) { return std::min(kPromptTokens, bundle.max_seq_len); }

Generator::Generator(Model& model) : model_(model) {
  const Bundle& b = model.bundle();
  size_t cache = 0;
  for (size_t u = 0; u < b.units.size(); ++u) {
    const bool takes = b.kind_of(u).side == Side::kTakes;
    offsets_.push_back(takes ? offsets_[b.units[u].giver] : cache);
    cache += static_cast<size_t>(b.kind_of(u).memory_size(b.max_seq_len));
  }
  first_ = Buffer(cache * sizeof(float));  // pages are touched as tokens are added
  second_ = Buffer(cache * sizeof(float));
  activations_ = Buffer(2 * model_.activation_bytes(prepared_tokens(b)));
  logits_.resize(static_cast<size_t>(b.vocab_size));
  if (model.adapter_is_on()) adapter_ = HalfAdapter(model.layout(), model.parameters());
  // Mapping them again for each token takes two fifths of it. A trainer's plan counts on what it has mapped itself.
  if (!model.claimed()) model.keep_resident(b.units.size() + 1);
}

/// Runs at most one piece of tokens after the cached ones. With `last`, computes the logits after the last token.
void Generator::feed(const int64_t* tokens, int64_t count, bool last) {
  const Bundle& b = model_.bundle();
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int64_t>(held_.size()) + i);
  float* x = activations_.floats();
  float* y = x + count * b.hidden_size;
  // With more rows, int8 has 8 bits: too few for the likeliest of two tokens that are almost as likely.
  model_.use_compute(count > kFewRows ? Compute::kFloat32 : compute_);
  model_.embed(tokens, count, x);
  for (size_t u = 0; u < b.units.size(); ++u) {
    model_.decode(u, x, positions.data(), count, first_.floats() + offsets_[u], second_.floats() + offsets_[u], y);
    std::swap(x, y);
  }
  held_.insert(held_.end(), tokens, tokens + count);
  model_.use_compute(compute_);
  if (last) model_.logits(x + (count - 1) * b.hidden_size, 1, logits_.data());
}

/// Computes what the cache does not have of `prompt`, at least its last token, for its logits.
void Generator::take(const std::vector<int64_t>& prompt, Compute compute) {
  const Bundle& b = model_.bundle();
  const int64_t length = static_cast<int64_t>(prompt.size());
  if (length == 0) fail("the prompt is empty");
  if (length >= b.max_seq_len) {
    fail("the prompt has ", length, " tokens; the bundle's maximum is ", b.max_seq_len,
         " including the answer; shorten it, or export the bundle again with a larger max_seq_len");
  }
  for (const int64_t token : prompt) {
    if (token < 0 || token >= b.vocab_size) fail("prompt: token ", token, " is not in the vocabulary");
  }
  if (compute != compute_) held_.clear();
  compute_ = compute;
  auto same = std::mismatch(prompt.begin(), prompt.end() - 1, held_.begin(), held_.end()).first - prompt.begin();
  const bool states =
      std::any_of(b.kinds.begin(), b.kinds.end(), [](const UnitKind& kind) { return kind.state_size > 0; });
  if (states && static_cast<size_t>(same) < held_.size()) same = 0;  // a state cannot be rewound
  held_.resize(static_cast<size_t>(same));
  for (int64_t i = same; i < length;) {
    const int64_t count = std::min(prepared_tokens(b), length - i);
    feed(prompt.data() + i, count, i + count == length);
    i += count;
  }
}

const std::vector<float>& Generator::logits_after(const std::vector<int64_t>& prompt, const GenerateConfig& config) {
  check(config);
  const Compute compute = compute_of(config, model_);
  const Answering answering(model_, compute, adapter_.lora());
  take(prompt, compute);
  return logits_;
}

std::vector<int64_t> Generator::generate(const std::vector<int64_t>& prompt, const GenerateConfig& config,
                                         const std::function<bool(int64_t)>& on_token) {
  check(config);
  const Compute compute = compute_of(config, model_);
  const Answering answering(model_, compute, adapter_.lora());
  take(prompt, compute);
  Random random(static_cast<uint64_t>(config.seed), 0);
  std::vector<int64_t> recent = prompt, answer;
  const int64_t most = std::min(config.max_tokens, model_.bundle().max_seq_len - static_cast<int64_t>(prompt.size()));
  while (static_cast<int64_t>(answer.size()) < most) {
    const int64_t token = sample(logits_, recent, config, random);
    if (std::count(config.stop_tokens.begin(), config.stop_tokens.end(), token) > 0) break;
    answer.push_back(token);
    recent.push_back(token);
    if (!on_token(token) || static_cast<int64_t>(answer.size()) == most) break;
    feed(&token, 1, true);
  }
  return answer;
}

}  // namespace mft
