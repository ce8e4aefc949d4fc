#include "runtime/generate/generator.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/generate/lookahead.h"
#include "runtime/generate/sampling.h"

namespace mft {
namespace {

/// While it lives, the model computes as answers do; then again as before, since a trainer may use it.
class Answering {
 public:
  Answering(Model& model, Compute compute, KvFormat kv_format, const HalfLora& lora)
      : model_(model), before_(model.compute()) {
    model.use_compute(compute);
    model.use_kv_format(kv_format);
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
  const Compute wanted = config.compute == ComputeChoice::kFloat32 ? Compute::kFloat32 : Compute::kInt15;
  if (model.has_room_for(wanted)) return wanted;
  if (config.compute == ComputeChoice::kInt8) fail("compute int8: a trainer prepared this model for float32 alone");
  return Compute::kFloat32;
}

KvFormat kv_format_of(const GenerateConfig& config) {
  if (config.kv_bits != 0) return static_cast<KvFormat>(config.kv_bits);  // which `check` has seen
  return config.compute == ComputeChoice::kFloat32 ? KvFormat::kFloat32 : KvFormat::kFloat16;
}

}  // namespace

int64_t Generator::prepared_tokens(const Bundle& bundle) { return std::min(kPromptTokens, bundle.max_seq_len); }

Generator::Generator(Model& model)
    : model_(model), piece_(std::min(prepared_tokens(model.bundle()), std::max(model.tokens(), kFewRows))) {
  const Bundle& b = model.bundle();
  activations_ = Buffer(2 * model_.activation_bytes(piece_));
  int64_t width = 0;
  for (const UnitKind& kind : b.kinds) width = std::max(width, kind.cache_width);
  fresh_ = Buffer(static_cast<size_t>(2 * piece_ * width) * sizeof(float));
  own_half_ = model.adapter_is_on() ? HalfAdapter(model.layout(), model.parameters())
                                    : HalfAdapter::none(model.no_adapter_buffer());
  half_ = &own_half_.lora();
  // Mapping them again for each token takes two fifths of it. A trainer's plan counts on what it has mapped itself.
  if (!model.claimed()) model.keep_resident(b.units.size() + 1);
}

void Generator::use_adapter(const std::string& folder) {
  if (model_.claimed()) fail("a trainer uses this model; open the bundle again to use another adapter");
  const LoadedAdapter& adapter = adapters_.get(model_, folder);
  if (model_.adapter_is_on() && model_.parameters() == adapter.parameters->floats()) return;
  own_half_ = {};
  half_ = &adapter.half.lora();
  model_.use_parameters(adapter.parameters);
  model_.use_adapter(true);
  forget();
}

void Generator::use_no_adapter() {
  if (model_.claimed()) fail("a trainer uses this model; open the bundle again to use another adapter");
  if (!model_.adapter_is_on()) return;
  own_half_ = HalfAdapter::none(model_.no_adapter_buffer());
  half_ = &own_half_.lora();
  model_.use_adapter(false);
  forget();
}

bool Generator::has_states() const {
  const std::vector<UnitKind>& kinds = model_.bundle().kinds;
  return std::any_of(kinds.begin(), kinds.end(), [](const UnitKind& kind) { return kind.state_size > 0; });
}

void Generator::forget() {
  held_.clear();
  prompt_.clear();
}

/// The tokens that were computed otherwise are forgotten.
void Generator::use(Compute compute, KvFormat kv_format) {
  if (compute == compute_ && kv_format == kv_format_ && !offsets_.empty()) return;
  const Bundle& b = model_.bundle();
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (size_t u = 0; u < b.units.size(); ++u) {
    const bool takes = b.kind_of(u).side == Side::kTakes;
    offsets.push_back(takes ? offsets[b.units[u].giver] : bytes);
    bytes += DecodeMemory::bytes(b.kind_of(u), kv_format, b.max_seq_len);
  }
  Buffer first(bytes), second(bytes);  // pages are touched as tokens are added
  // Set only after the allocations, which may fail.
  forget();
  compute_ = compute;
  kv_format_ = kv_format;
  offsets_ = std::move(offsets);
  first_ = std::move(first);
  second_ = std::move(second);
}

/// Runs at most one piece of tokens after the cached ones, and computes the logits after the last `logit_rows` of them.
void Generator::feed(const int64_t* tokens, int64_t count, int64_t logit_rows) {
  const Bundle& b = model_.bundle();
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int64_t>(held_.size()) + i);
  float* x = activations_.floats();
  float* y = x + count * b.hidden_size;
  model_.embed(tokens, count, x);
  // If a unit fails, the states of those before it have advanced. A state cannot be rewound, so nothing is held then.
  std::vector<int64_t> held;
  if (has_states()) held.swap(held_);
  for (size_t u = 0; u < b.units.size(); ++u) {
    const auto part = [&](Buffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.bytes()) + offsets_[u]; };
    model_.decode(u, x, positions.data(), count, {part(first_), part(second_), fresh_.floats()}, y);
    std::swap(x, y);
  }
  if (has_states()) held_.swap(held);
  held_.insert(held_.end(), tokens, tokens + count);
  if (logit_rows == 0) return;
  logits_.resize(static_cast<size_t>(logit_rows * b.vocab_size));
  model_.logits(x + (count - logit_rows) * b.hidden_size, logit_rows, logits_.data());
}

/// Computes what the caches do not have of `prompt`, at least its last token, for its logits. False if `on_prompt`
/// ended it before.
bool Generator::take(const std::vector<int64_t>& prompt, const std::function<bool()>& on_prompt) {
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
  const bool states = has_states();
  // Alone, in int8, the last token of a long prompt would have slightly other logits than at first.
  if (prompt == prompt_ && (!states || held_.size() == prompt.size())) {
    held_.resize(prompt.size());
    logits_ = prompt_logits_;
    return true;
  }
  prompt_.clear();
  auto same = std::mismatch(prompt.begin(), prompt.end() - 1, held_.begin(), held_.end()).first - prompt.begin();
  if (states && static_cast<size_t>(same) < held_.size()) same = 0;  // a state cannot be rewound
  held_.resize(static_cast<size_t>(same));
  for (int64_t i = same; i < length;) {
    const int64_t count = std::min(piece_, length - i);
    feed(prompt.data() + i, count, i + count == length ? 1 : 0);
    i += count;
    if (i < length && on_prompt && !on_prompt()) return false;
  }
  prompt_ = prompt;
  prompt_logits_ = logits_;
  return true;
}

/// Of `fed` tokens, which the cache ends with, the first one and `right` guesses stay.
void Generator::drop_guesses(size_t fed, size_t right) {
  if (fed > 0) held_.resize(held_.size() - (fed - 1 - right));
}

const std::vector<float>& Generator::logits_after(const std::vector<int64_t>& prompt, const GenerateConfig& config) {
  check(config);
  use(compute_of(config, model_), kv_format_of(config));
  const Answering answering(model_, compute_, kv_format_, *half_);
  take(prompt, {});
  return logits_;
}

std::vector<int64_t> Generator::generate(const std::vector<int64_t>& prompt, const GenerateConfig& config,
                                         const std::function<bool(int64_t)>& on_token,
                                         const std::function<bool()>& on_prompt) {
  check(config);
  use(compute_of(config, model_), kv_format_of(config));
  const Answering answering(model_, compute_, kv_format_, *half_);
  if (!take(prompt, on_prompt)) return {};
  Random random(static_cast<uint64_t>(config.seed), 0);
  Lookahead lookahead(prompt);
  const Bundle& b = model_.bundle();
  // In float32, a token's logits beside others may differ from those alone in their last bit. A state cannot be
  // rewound.
  const bool looks_ahead = compute_ == Compute::kInt15 && !has_states();
  const auto vocab = static_cast<size_t>(b.vocab_size);
  const auto most =
      static_cast<size_t>(std::min(config.max_tokens, b.max_seq_len - static_cast<int64_t>(prompt.size())));
  std::vector<int64_t> recent = prompt, answer, fed;  // `fed`: the last token, and guesses of those after it
  size_t row = 0;                                     // in logits_: of the guesses, so many were right
  while (answer.size() < most) {
    const int64_t token = sample(logits_.data() + row * vocab, vocab, recent, config, random);
    if (std::count(config.stop_tokens.begin(), config.stop_tokens.end(), token) > 0) break;
    answer.push_back(token);
    recent.push_back(token);
    lookahead.add(token);
    if (!on_token(token) || answer.size() == most) break;
    if (row + 1 < fed.size() && fed[row + 1] == token) {
      ++row;
      continue;
    }
    drop_guesses(fed.size(), row);
    fed = {token};
    row = 0;
    if (looks_ahead) {
      const auto guesses = lookahead.guesses(std::min<size_t>(kFewRows - 1, most - answer.size() - 1));
      fed.insert(fed.end(), guesses.begin(), guesses.end());
    }
    const double begin = now();
    feed(fed.data(), static_cast<int64_t>(fed.size()), static_cast<int64_t>(fed.size()));
    lookahead.took(fed.size(), now() - begin);
  }
  drop_guesses(fed.size(), row);
  return answer;
}

}  // namespace mft
