#include "runtime/data/row_text.h"

#include "runtime/base/error.h"
#include "runtime/data/row_values.h"

namespace mft {
namespace {

constexpr const char* kNoTemplate =
    "the model has no chat template; use prompt and completion, or text, and no \"system\"";

/// The number of the last message with the role "assistant".
size_t last_answer(const Chat& chat) {
  size_t last = chat.messages.size() - 1;
  while (last > 0 && find(chat.messages[last], "role")->text() != "assistant") --last;
  return last;
}

struct Texts {
  const ChatTemplate* chat_template;
  const DataConfig& config;

  LearnedText of(const ChatRow& row) const {
    if (chat_template == nullptr) fail(kNoTemplate);
    RenderedChat rendered = chat_template->answers(row.chat);
    LearnedText found{std::move(rendered.text), {}, true};
    if (!config.mask_prompt) {
      size_t begin = 0;
      for (const Answer& answer : rendered.answers) {
        if (!row.masked[answer.message]) continue;
        found.learned.emplace_back(begin, answer.begin);
        begin = answer.end;
      }
      found.learned.emplace_back(begin, found.text.size());
      return found;
    }
    // The last answer may be masked; then nothing is learned.
    const size_t first = config.assistant_turns == AssistantTurns::kLast ? last_answer(row.chat) : 0;
    for (const Answer& answer : rendered.answers) {
      if (answer.message >= first && row.learned[answer.message]) found.learned.emplace_back(answer.begin, answer.end);
    }
    return found;
  }

  LearnedText of(const PairRow& row) const {
    if (chat_template != nullptr) {
      ChatRow dialogue{row.chat, {false, true}, {false, false}};
      dialogue.chat.add("user", row.prompt);
      dialogue.chat.add("assistant", row.completion);
      return of(dialogue);
    }
    if (!row.chat.variables.empty()) fail('"', row.chat.variables[0].first, "\": ", kNoTemplate);
    // Tokenized as one text, so that a completion's leading space is merged with its word as usual.
    const size_t size = row.prompt.size() + row.completion.size();
    return {row.prompt + row.completion, {{config.mask_prompt ? row.prompt.size() : 0, size}}, false};
  }

  LearnedText of(const AnswerRow& row) const {
    return std::visit([&](const auto& answer) { return of(answer); }, row);
  }
};

}  // namespace

RowText row_text(const Row& row, const ChatTemplate* chat_template, const DataConfig& config) {
  const Texts texts{chat_template, config};
  RowText found;
  found.weight = row.weight;
  found.form = row.form;
  found.label = row.label;
  if (const auto* plain = std::get_if<TextRow>(&row.content)) {
    found.plain = true;
    found.sides.push_back({plain->text, {{0, plain->text.size()}}, false});
  } else if (const auto* preference = std::get_if<PreferenceRow>(&row.content)) {
    found.sides = {texts.of(preference->chosen), texts.of(preference->rejected)};
  } else if (const auto* chat = std::get_if<ChatRow>(&row.content)) {
    found.sides.push_back(texts.of(*chat));
  } else {
    found.sides.push_back(texts.of(std::get<PairRow>(row.content)));
  }
  return found;
}

}  // namespace mft
