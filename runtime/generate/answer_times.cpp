#include "runtime/generate/answer_times.h"

#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"

namespace mft {
AnswerTimes time_answer(Generator& generator, int64_t prompt_tokens, int64_t answer_tokens,
                        const GenerateConfig& config, uint64_t run) {
  const auto vocab = static_cast<uint64_t>(generator.model().bundle().vocab_size);
  Random random(run, 0);
  std::vector<int64_t> text;
  const auto draw = [&] { text.push_back(static_cast<int64_t>(random.next() % vocab)); };
  while (static_cast<int64_t>(text.size()) < prompt_tokens) draw();
  const double begin = now();
  generator.logits_after(text, config);
  const double read = now();
  for (int64_t i = 0; i < answer_tokens; ++i) {
    draw();
    generator.logits_after(text, config);
  }
  return {read - begin, now() - read};
}

}  // namespace mft
