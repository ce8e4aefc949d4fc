#pragma once

#include <string>

#include "runtime/text/chat_template.h"

namespace mft {

/// Converts a chat to the form that a template expects, and finds parts that the template would ignore.
///
/// Templates expect different forms: arguments of tool calls as an object or as JSON text, missing content beside tool
/// calls as null or "", parts of text as a list or as one text. If a template can use the form of the chat, the chat is
/// not changed.
class ChatFitting {
 public:
  explicit ChatFitting(const ChatTemplate& chat_template) : template_(chat_template) {}

  struct Fitted {
    Chat chat;
    jinja::Rendering rendering;
  };

  /// Throws Error with the part that the template rejects or ignores.
  Fitted fit(const Chat& chat, bool generation_prompt) const;

 private:
  /// The form of a message's content that the template shows as text.
  enum class Content { kText, kParts, kEither };

  Content content_form() const;
  Chat with_usable_content(const Chat& chat, Content form) const;
  Chat with_usable_calls(const Chat& chat, bool generation_prompt) const;
  /// Checks each call, and each content beside calls, of a chat that is learned.
  void check_each_call(const Fitted& fitted) const;
  void check_use(const Fitted& fitted, bool generation_prompt) const;
  void check_reasoning(const Fitted& fitted, const std::string& key, bool generation_prompt) const;
  void check_shown(const Fitted& fitted, bool generation_prompt) const;
  std::string text(const Chat& chat, bool generation_prompt) const {
    return template_.render(chat, generation_prompt).text;
  }
  /// The same, but "" if the template rejects the chat.
  std::string text_if_any(const Chat& chat, bool generation_prompt) const;

  const ChatTemplate& template_;
};

}  // namespace mft
