#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/template.h"
#include "runtime/jinja/value.h"

namespace mft {

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

/// A chat in the form of chat templates: dicts with "role", "content", "tool_calls" and so on.
struct Chat {
  /// More than any chat needs. The cost of a row of data is limited when it is read.
  static constexpr int64_t kBudget = 256'000'000;

  std::shared_ptr<jinja::Memory> memory = std::make_shared<jinja::Memory>(kBudget);  // owns the values
  std::vector<jinja::Value> messages;
  Variables variables;  // the row's tools, documents and chat_template_kwargs

  void add(std::string role, std::string content);
};

/// A content of one part: [{"type": "text", "text": text}].
jinja::Value text_parts(std::string text, jinja::Memory& memory);

/// U+E000, which no chat contains. It marks the place of a text in a rendering.
constexpr const char* kMark = "\xee\x80\x80";

/// A run's settings of the chat template.
struct TemplateSettings {
  std::string variables;  // chat_template_kwargs: a JSON object; empty: none
  std::string date;       // YYYY-MM-DD, for templates that use the date; empty: today
};

/// An assistant's turn in a rendered chat: the bytes [begin, end) that the model must generate.
struct Answer {
  size_t message, begin, end;
};

struct RenderedChat {
  std::string text;
  std::vector<Answer> answers;
};

/// A model's chat template, cheap to copy. Chats are rendered to the same text as by Transformers' apply_chat_template.
/// A key of a chat that changes its meaning but that the template ignores is an error.
class ChatTemplate {
 public:
  /// `tokens` are the texts of bos_token, eos_token and so on. Throws Error if `source` is not a template, or a setting
  /// cannot be used.
  ChatTemplate(std::string_view source, const std::map<std::string, std::string>& tokens,
               const TemplateSettings& settings = {});
  /// Returns the same template with the settings of a run.
  ChatTemplate with(const TemplateSettings& settings) const;

  /// Whether it uses the date.
  bool shows_date() const { return template_->reads("strftime_now"); }

  /// Renders the chat with the beginning of the next answer. Throws Error if the template rejects the chat.
  std::string prompt(const Chat& chat) const;
  /// Renders the chat and finds its answers. The text after the last answer is part of it. Throws Error if the template
  /// rejects the chat or ignores one of its messages, or if the beginning of an answer cannot be determined.
  RenderedChat answers(const Chat& chat) const;

 private:
  friend class ChatFitting;
  jinja::Rendering render(const Chat& chat, bool generation_prompt) const;
  void check_variable(const std::string& name) const;
  void check_variables(const Chat& chat) const;

  // Ways to find the answers, in this order: the template's own marks; the text of each message without the beginning
  // that its prompt has; the renderings of the chat before a message and up to it.
  std::vector<Answer> marked_answers(const jinja::Rendering& rendering, const std::vector<size_t>& messages) const;
  Answer answer_of(const Chat& chat, const jinja::Rendering& rendering, size_t message) const;
  /// The parts of an answer before and after the results of tools. Some templates, such as Gemma 4's, show results
  /// within the message that calls the tools.
  std::vector<Answer> without_results(const Chat& chat, const jinja::Rendering& rendering, const Answer& answer) const;
  /// The number of bytes at the beginning of a message's text that are not the answer: all if the template omits it.
  size_t head_size(std::string_view region, const Chat& chat, size_t message) const;
  /// The end of an answer's prompt: the text after its last message, and the text that add_generation_prompt adds.
  std::pair<std::string, std::string> heads_of(const Chat& chat, size_t message) const;
  /// The text of a message; "" if the template rejects the chat.
  std::string region_in(const Chat& chat, size_t message) const;
  Answer answer_by_prefixes(const Chat& chat, const std::string& text, size_t message) const;

  std::shared_ptr<const jinja::Template> template_;
  Variables variables_;                                         // variables of every rendering
  std::vector<std::shared_ptr<const jinja::Memory>> memories_;  // own the values of `variables_`
  std::tm date_{};
};

}  // namespace mft
