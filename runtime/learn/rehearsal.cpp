#include "runtime/learn/rehearsal.h"

#include <algorithm>
#include <string>

#include "runtime/generate/generator.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/learn/version_losses.h"

namespace mft {
namespace {

constexpr int64_t kTokens = 64;  // of a text; with longer ones, writing takes most of a night

// So that a first night of many rows is not spent on writing.
constexpr size_t kMostTexts = 128;

}  // namespace

std::vector<RowGroup> write_rehearsal(Model& model, const BundleText& text, const LearnerState& state, int64_t night,
                                      size_t count, const TrainConfig& config,
                                      std::chrono::steady_clock::time_point until, const EventSink& emit,
                                      const StopRequest& stop) {
  model.prepare("", std::min(kFewRows, config.seq_len), config.threads);
  Generator generator(model);
  // With a budget, no more than the weights that a plan counts on.
  if (config.budget > 0) model.keep_resident(0);
  // In training data, a text follows the end of another one. Nothing stops it here, as another one would follow it.
  const int64_t start = text.bos().value_or(text.end_tokens().front());
  GenerateConfig options;
  options.max_tokens = std::min(kTokens, config.seq_len);
  options.temp = 1;
  std::vector<RowGroup> texts;
  const size_t most = std::min(count, kMostTexts);
  for (size_t i = 0; i < most && std::chrono::steady_clock::now() < until; ++i) {
    options.seed = static_cast<int64_t>(0x1p53 * state.draw("rehearsal", night, std::to_string(i)));
    const std::vector<int64_t> written = generator.generate({start}, options, [&](int64_t) {
      check_stop(stop);
      return true;
    });
    emit({{"event", "rehearsal"}, {"text", i + 1}, {"texts", most}});
    EncodedRow row;
    row.tokens = {static_cast<int32_t>(start)};
    row.tokens.insert(row.tokens.end(), written.begin(), written.end() - 1);
    row.targets.assign(written.begin(), written.end());
    texts.push_back({row});
  }
  model.keep_resident(0);
  const size_t written = texts.size();
  for (size_t i = written; written > 0 && i < count; ++i) texts.push_back(texts[i - written]);
  return texts;
}

}  // namespace mft
