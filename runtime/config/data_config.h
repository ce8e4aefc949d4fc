#pragma once

#include <string>
#include <vector>

#include "runtime/base/option.h"

namespace mft {

/// Which answers of a chat are learned.
enum class AssistantTurns { kAll, kLast };
inline std::vector<const char*> names(AssistantTurns) { return {"all", "last"}; }

/// What to do about a row that cannot be used.
enum class OnBadRow { kError, kSkip };
inline std::vector<const char*> names(OnBadRow) { return {"error", "skip"}; }

/// How rows of data become tokens. Names, texts and defaults reach every front end through `data_options`, and as
/// options of a training run.
struct DataConfig {
  bool mask_prompt = true;
  AssistantTurns assistant_turns = AssistantTurns::kAll;
  std::string chat_template_kwargs;
  std::string chat_template_date;
  OnBadRow on_bad_row = OnBadRow::kError;
  std::string messages_key, prompt_key, completion_key;
};

const std::vector<Option<DataConfig>>& data_options();

}  // namespace mft
