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

/// A chat as a chat template takes it: dicts with "role", "content", "tool_calls" and so on.
struct Chat {
  /// More than any chat needs: what a row of data takes is bounded by what is read of it.
  static constexpr int64_t kBudget = 256'000'000;

  std::shared_ptr<jinja::Memory> memory = std::make_shared<jinja::Memory>(kBudget);  // owns the values
  std::vector<jinja::Value> messages;
  Variables variables;  // what else the row brings: tools, documents, the row's own chat_template_kwargs

  void add(std::string role, std::string content);
};

/// U+E000, which no chat holds: what a text's place in a rendering is found by.
constexpr const char* kMark = "\xee\x80\x80";

/// What a run sets for a chat template.
struct TemplateSettings {
  std::string variables;  // chat_template_kwargs: a JSON object; empty: none
  std::string date;       // YYYY-MM-DD, for templates that ask for the date; empty: today
};

/// An assistant's turn in a rendered chat: bytes [begin, end) that the model is to produce.
struct Answer {
  size_t message, begin, end;
};

struct RenderedChat {
  std::string text;
  std::vector<Answer> answers;
};

/// A model's chat template, cheap to copy. Chats become the text that Transformers' apply_chat_template makes of them;
/// a key of a chat that changes its meaning and that the template does not use is an error.
class ChatTemplate {
 public:
  /// `tokens` are the texts of bos_token, eos_token and so on. Throws Error where `source` is no template, or a setting
  /// cannot be used.
  ChatTemplate(std::string_view source, const std::map<std::string, std::string>& tokens,
               const TemplateSettings& settings = {});
  /// The same template with the settings of a run.
  ChatTemplate with(const TemplateSettings& settings) const;

  /// Whether it asks for the date.
  bool shows_date() const { return template_->reads("strftime_now"); }

  /// The chat with the beginning of the next answer. Throws Error where the template refuses the chat.
  std::string prompt(const Chat& chat) const;
  /// The chat, and where each of its answers lies. What follows the last one is part of it. Throws Error where the
  /// template refuses the chat, does not show one of its messages, or leaves unclear where an answer begins.
  RenderedChat answers(const Chat& chat) const;

 private:
  friend class ChatFitting;
  jinja::Rendering render(const Chat& chat, bool generation_prompt) const;
  void check_variable(const std::string& name) const;
  void check_variables(const Chat& chat) const;

  // Of `answers`, in the order in which they are tried: by the template's own marks; by what each message made, without
  // the head that its prompt has; by what the chat before it and up to it renders to.
  std::vector<Answer> marked_answers(const jinja::Rendering& rendering, const std::vector<size_t>& messages) const;
  Answer answer_of(const Chat& chat, const jinja::Rendering& rendering, size_t message) const;
  /// Bytes at the beginning of a message's text that are not the answer: all of it if the template leaves that out.
  size_t head_size(std::string_view region, const Chat& chat, size_t message) const;
  /// How the prompt of an answer ends: what stands behind its last message, and what add_generation_prompt adds.
  std::pair<std::string, std::string> heads_of(const Chat& chat, size_t message) const;
  std::string region_of_marked(const Chat& chat, size_t message) const;
  Answer answer_by_prefixes(const Chat& chat, const std::string& text, size_t message) const;

  std::shared_ptr<const jinja::Template> template_;
  Variables variables_;                                         // those of every rendering
  std::vector<std::shared_ptr<const jinja::Memory>> memories_;  // own the values of `variables_`
  std::tm date_{};
};

}  // namespace mft
