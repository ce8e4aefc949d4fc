#pragma once

#include <string>

#include "runtime/text/chat_template.h"

namespace mft {

/// Gives a template a chat in the form that it takes, and finds what it would drop.
///
/// Templates differ in what they want: arguments of tool calls as an object or as JSON text, content that is missing
/// beside tool calls as null or "", parts of text as a list or as one text. Where it can use what the chat has, that
/// stays as it is.
class ChatFitting {
 public:
  explicit ChatFitting(const ChatTemplate& chat_template) : template_(chat_template) {}

  struct Fitted {
    Chat chat;
    jinja::Rendering rendering;
  };

  /// Throws Error that names what the template refuses, or does not use.
  Fitted fit(const Chat& chat, bool generation_prompt) const;

 private:
  bool takes_parts() const;
  Chat with_joined_parts(const Chat& chat) const;
  Chat with_usable_calls(const Chat& chat, bool generation_prompt) const;
  void check_use(const Fitted& fitted, bool generation_prompt) const;
  void check_reasoning(const Fitted& fitted, const std::string& key, bool generation_prompt) const;
  void check_shown(const Fitted& fitted, bool generation_prompt) const;
  std::string text(const Chat& chat, bool generation_prompt) const {
    return template_.render(chat, generation_prompt).text;
  }
  /// The same, "" where the template refuses the chat.
  std::string text_if_any(const Chat& chat, bool generation_prompt) const;

  const ChatTemplate& template_;
};

}  // namespace mft
