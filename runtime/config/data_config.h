#pragma once

#include <string>
#include <vector>

#include "runtime/base/option.h"

namespace mft {

/// Selects the assistant turns of a chat that are learned.
enum class AssistantTurns { kAll, kLast };
inline std::vector<const char*> names(AssistantTurns) { return {"all", "last"}; }

/// Whether a malformed row is an error or is skipped.
enum class OnBadRow { kError, kSkip };
inline std::vector<const char*> names(OnBadRow) { return {"error", "skip"}; }

/// Options of tokenization. All front ends get their names, texts and defaults from `data_options`, and as options of a
/// training run.
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
