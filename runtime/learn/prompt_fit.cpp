#include "runtime/learn/prompt_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/learn/version_losses.h"

namespace mft {
namespace {

constexpr size_t kMostCompared = 40;
constexpr int64_t kFewestCompared = 10;
constexpr double kMostChance = 0.01;

/// How likely at most `count` of `of` are right if each is with this probability.
double chance_of_at_most(int64_t count, int64_t of, double probability) {
  double sum = 0;
  for (int64_t k = 0; k <= count; ++k) {
    const double choose = std::lgamma(of + 1.0) - std::lgamma(k + 1.0) - std::lgamma(of - k + 1.0);
    sum += std::exp(choose + static_cast<double>(k) * std::log(probability) +
                    static_cast<double>(of - k) * std::log1p(-probability));
  }
  return sum;
}

size_t first_target(const EncodedRow& row) {
  const auto first = std::find_if(row.targets.begin(), row.targets.end(), [](int32_t target) { return target >= 0; });
  return static_cast<size_t>(first - row.targets.begin());
}

/// The answer of `row` after the prompt of `other`.
EncodedRow after_prompt_of(const EncodedRow& other, const EncodedRow& row) {
  const auto prompt = static_cast<std::ptrdiff_t>(first_target(other)),
             own = static_cast<std::ptrdiff_t>(first_target(row));
  EncodedRow made;
  made.tokens.assign(other.tokens.begin(), other.tokens.begin() + prompt + 1);
  made.tokens.insert(made.tokens.end(), row.tokens.begin() + own + 1, row.tokens.end());
  made.targets.assign(other.targets.begin(), other.targets.begin() + prompt);
  made.targets.insert(made.targets.end(), row.targets.begin() + own, row.targets.end());
  return made;
}

}  // namespace

PromptFit prompt_fit(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                     const std::vector<LoggedRow>& rows, const std::string& work, const StopRequest& stop) {
  TrainConfig answers = config;
  answers.loss = Loss::kSft;  // of the preferred answer, where there are two
  const RowEncoder encoder(text, config);
  std::vector<EncodedRow> found;
  for (const LoggedRow& row : rows) {
    const EncodedRows encoded = encode_kept(row, encoder, config.data.on_bad_row);
    if (encoded.groups.size() != 1) continue;  // a long text has several
    const EncodedRow& first = encoded.groups[0][0];
    if (first_target(first) > 0) found.push_back(first);
    if (found.size() == kMostCompared) break;
  }
  Encoded pairs;
  for (size_t i = 0; i < found.size(); ++i) {
    const EncodedRow other = after_prompt_of(found[(i + 1) % found.size()], found[i]);
    if (static_cast<int64_t>(other.tokens.size()) > config.seq_len) continue;
    pairs.add({RowGroup{found[i]}, RowGroup{other}}, 1);
  }
  PromptFit fit;
  if (pairs.groups.empty()) return fit;
  model.prepare(adapter, config.seq_len, config.threads, Compute::kFloat32, config.mlp_tokens);
  double own = 0;
  evaluate_apart(model, pairs, answers, work + "/prompts.safetensors", stop, [&](int64_t i, const LossSum& loss) {
    if (i % 2 == 0) {
      own = loss.loss;
    } else if (loss.loss != own) {  // equal after an equal prompt
      ++fit.of;
      fit.better += own < loss.loss;
    }
  });
  return fit;
}

bool is_mixed_up(const PromptFit& night, const PromptFit& earlier) {
  if (night.of < kFewestCompared) return false;
  const double expected = (static_cast<double>(earlier.better) + 1) / (static_cast<double>(earlier.of) + 2);
  const double as_random = chance_of_at_most(night.of - night.better, night.of, 0.5);
  return as_random > kMostChance && chance_of_at_most(night.better, night.of, expected) <= kMostChance;
}

}  // namespace mft
