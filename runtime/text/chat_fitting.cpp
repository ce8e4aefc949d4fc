#include "runtime/text/chat_fitting.h"

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/json.h"

namespace mft {
namespace {

using jinja::CallArguments;
using jinja::Dict;
using jinja::Memory;
using jinja::Type;
using jinja::Value;

constexpr const char* kReasoningKeys[] = {"reasoning_content", "reasoning", "thinking"};
constexpr const char* kAdvice =
    "; remove it from the row, or export the model with a template that uses it (--chat-template FILE)";

const Value* find(const Value& dict, std::string_view key) {
  return dict.is(Type::kDict) ? dict.dict().find(key) : nullptr;
}

bool is_empty(const Value* value) { return value == nullptr || !jinja::is_true(*value); }

/// Returns a copy of a dict with one value replaced, or removed if it is nullptr.
Value replaced(const Value& dict, std::string_view key, const Value* with, Memory& memory) {
  Dict* copy = memory.dict();
  bool found = false;
  for (const auto& [name, value] : dict.dict().items()) {
    const bool is = name.is(Type::kText) && name.text() == key;
    found |= is;
    if (!is) {
      copy->set(name, value, memory);
    } else if (with != nullptr) {
      copy->set(name, *with, memory);
    }
  }
  if (!found && with != nullptr) copy->set(memory.text(std::string(key)), *with, memory);
  return Value::of(copy);
}

std::string json_of(const Value& value, Memory& memory) {
  CallArguments plain("tojson", {}, {});
  return jinja::json_text(value, plain, memory);
}

/// Applies `change` to each message in which a key is not empty.
Chat changed(const Chat& chat, std::string_view key, const std::function<Value(const Value& message)>& change) {
  Chat other = chat;
  for (Value& message : other.messages) {
    if (!is_empty(find(message, key))) message = change(message);
  }
  return other;
}

Chat without(const Chat& chat, std::string_view key) {
  return changed(chat, key, [&](const Value& message) { return replaced(message, key, nullptr, *chat.memory); });
}

Chat without_variable(const Chat& chat, std::string_view name) {
  Chat other = chat;
  other.variables.erase(std::remove_if(other.variables.begin(), other.variables.end(),
                                       [&](const auto& variable) { return variable.first == name; }),
                        other.variables.end());
  return other;
}

bool has(const Chat& chat, std::string_view key) {
  return std::any_of(chat.messages.begin(), chat.messages.end(),
                     [&](const Value& message) { return !is_empty(find(message, key)); });
}

/// The number, from 1, of the first message that has a key.
size_t number_with(const Chat& chat, std::string_view key) {
  const auto found = std::find_if(chat.messages.begin(), chat.messages.end(),
                                  [&](const Value& message) { return !is_empty(find(message, key)); });
  return static_cast<size_t>(found - chat.messages.begin()) + 1;
}

/// The function of a tool call: the value of "function", or the call itself.
const Value& function_of(const Value& call) {
  const Value* function = find(call, "function");
  return function == nullptr ? call : *function;
}

enum class Form { kObject, kText };

/// Converts a tool call's arguments to one form. JSON text that is not an object stays text.
Value arguments_as(const Value& arguments, Form form, Memory& memory) {
  if (form == Form::kText) return arguments.is(Type::kText) ? arguments : memory.text(json_of(arguments, memory));
  if (!arguments.is(Type::kText)) return arguments;
  try {
    const Value read = jinja::read_json(arguments.text(), memory);
    return read.is(Type::kDict) ? read : arguments;
  } catch (const Error&) {
    return arguments;
  }
}

Chat with_arguments(const Chat& chat, Form form) {
  Memory& memory = *chat.memory;
  return changed(chat, "tool_calls", [&](const Value& message) {
    std::vector<Value> calls;
    for (const Value& call : find(message, "tool_calls")->list().items) {
      const Value& function = function_of(call);
      const Value* given = find(function, "arguments");
      if (given == nullptr) {
        calls.push_back(call);
        continue;
      }
      const Value as = arguments_as(*given, form, memory);
      const Value with = replaced(function, "arguments", &as, memory);
      calls.push_back(&function == &call ? with : replaced(call, "function", &with, memory));
    }
    const Value list = memory.list(std::move(calls));
    return replaced(message, "tool_calls", &list, memory);
  });
}

/// Replaces empty content beside tool calls by `content`, or removes it if that is nullptr.
Chat with_content(const Chat& chat, const Value* content) {
  return changed(chat, "tool_calls", [&](const Value& message) {
    const Value* given = find(message, "content");
    return is_empty(given) ? replaced(message, "content", content, *chat.memory) : message;
  });
}

size_t count_of(const std::string& text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

/// Whether a text shows arguments in an unintended form (JSON text within a string, or Python's dicts) more often than
/// without the calls.
bool distorts_arguments(const std::string& text, const std::string& without_calls, const Chat& chat) {
  Memory& memory = *chat.memory;
  for (const Value& message : chat.messages) {
    const Value* calls = find(message, "tool_calls");
    if (is_empty(calls)) continue;
    for (const Value& call : calls->list().items) {
      const Value* arguments = find(function_of(call), "arguments");
      if (is_empty(arguments)) continue;
      const bool is_text = arguments->is(Type::kText);
      const std::string wrong = is_text ? json_of(*arguments, memory) : jinja::to_text(*arguments, memory);
      const bool is_json = !is_text && wrong == json_of(*arguments, memory);
      if (!is_json && count_of(text, wrong) > count_of(without_calls, wrong)) return true;
    }
  }
  return false;
}

/// Returns the texts of a content's parts as one. `message` counts from 0.
std::string joined_parts(const Value& content, size_t message) {
  std::string joined;
  for (const Value& part : content.list().items) {
    const Value *type = find(part, "type"), *text = find(part, "text");
    const bool is_text = text != nullptr && text->is(Type::kText) &&
                         (type == nullptr || (type->is(Type::kText) && type->text() == "text"));
    if (!is_text) {
      fail("message ", message + 1, ": \"content\" has a part that is not text",
           type != nullptr && type->is(Type::kText) ? " but \"" + type->text() + '"' : "",
           "; parts must be {\"type\": \"text\", \"text\"} objects");
    }
    joined += text->text();
  }
  return joined;
}

void check_calls(const Chat& chat) {
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Value* calls = find(chat.messages[i], "tool_calls");
    if (is_empty(calls)) continue;
    const auto is_call = [](const Value& call) {
      const Value& function = call.is(Type::kDict) ? function_of(call) : call;
      const Value* name = find(function, "name");
      return name != nullptr && name->is(Type::kText);
    };
    if (!calls->is(Type::kList) || !std::all_of(calls->list().items.begin(), calls->list().items.end(), is_call)) {
      fail("message ", i + 1, ": \"tool_calls\" must be a list of {\"function\": {\"name\", \"arguments\"}} objects");
    }
  }
}

}  // namespace

std::string ChatFitting::text_if_any(const Chat& chat, bool generation_prompt) const {
  try {
    return text(chat, generation_prompt);
  } catch (const jinja::OverBudget&) {
    throw;
  } catch (const Error&) {
    return "";
  }
}

ChatFitting::Fitted ChatFitting::fit(const Chat& given, bool generation_prompt) const {
  check_calls(given);
  Fitted fitted{with_usable_content(given, content_form()), {}};
  if (has(fitted.chat, "tool_calls")) fitted.chat = with_usable_calls(fitted.chat, generation_prompt);
  fitted.rendering = template_.render(fitted.chat, generation_prompt);
  if (!generation_prompt && has(fitted.chat, "tool_calls")) check_each_call(fitted);
  check_use(fitted, generation_prompt);
  check_shown(fitted, generation_prompt);
  return fitted;
}

ChatFitting::Content ChatFitting::content_form() const {
  Chat as_text, as_parts;
  as_text.add("user", kMark);
  as_parts.add("user", "");
  const Value parts = text_parts(kMark, *as_parts.memory);
  as_parts.messages[0] = replaced(as_parts.messages[0], "content", &parts, *as_parts.memory);
  const std::string text = text_if_any(as_text, false), of_parts = text_if_any(as_parts, false);
  if (text.find(kMark) == text.npos && of_parts.find(kMark) != of_parts.npos) return Content::kParts;
  return !text.empty() && of_parts == text ? Content::kEither : Content::kText;
}

Chat ChatFitting::with_usable_content(const Chat& chat, Content form) const {
  Chat other = chat;
  Memory& memory = *other.memory;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Value* content = find(chat.messages[i], "content");
    if (content == nullptr) continue;
    if (content->is(Type::kList)) {
      std::string joined = joined_parts(*content, i);
      if (form != Content::kText) continue;
      const Value text = memory.text(std::move(joined));
      other.messages[i] = replaced(chat.messages[i], "content", &text, memory);
    } else if (content->is(Type::kText) && form == Content::kParts) {
      const Value parts = text_parts(std::string(content->text()), memory);
      other.messages[i] = replaced(chat.messages[i], "content", &parts, memory);
    }
  }
  return other;
}

Chat ChatFitting::with_usable_calls(const Chat& chat, bool generation_prompt) const {
  const Value none = Value::none(), empty = chat.memory->text("");
  const std::vector<std::function<Chat(const Chat&)>> arguments = {
      [](const Chat& one) { return one; },
      [](const Chat& one) { return with_arguments(one, Form::kObject); },
      [](const Chat& one) { return with_arguments(one, Form::kText); },
  };
  const std::vector<std::function<Chat(const Chat&)>> contents = {
      [](const Chat& one) { return one; },
      [&](const Chat& one) { return with_content(one, &none); },
      [&](const Chat& one) { return with_content(one, &empty); },
  };
  std::string refusal;
  bool rendered = false;
  for (const auto& with_content_as : contents) {
    for (const auto& with_arguments_as : arguments) {
      const Chat fitted = with_arguments_as(with_content_as(chat));
      try {
        const std::string shown = text(fitted, generation_prompt);
        rendered = true;
        const std::string without_calls = text_if_any(without(fitted, "tool_calls"), generation_prompt);
        // If the template prints null as a word, empty content is meant.
        const std::string without_null = text_if_any(with_content(fitted, &empty), generation_prompt);
        const bool prints_null = !without_null.empty() && count_of(shown, "None") > count_of(without_null, "None");
        if (without_calls != shown && !prints_null && !distorts_arguments(shown, without_calls, fitted)) return fitted;
      } catch (const jinja::OverBudget&) {
        throw;
      } catch (const Error& error) {
        if (refusal.empty()) refusal = error.what();
      }
    }
  }
  if (!rendered) fail(refusal);
  fail("message ", number_with(chat, "tool_calls"), ": \"tool_calls\" are not used by the model's chat template",
       kAdvice);
}

void ChatFitting::check_each_call(const Fitted& fitted) const {
  const Chat& chat = fitted.chat;
  Memory& memory = *chat.memory;
  const auto mark_of = [](size_t message, size_t call) {
    return kMark + std::to_string(message) + "." + std::to_string(call) + kMark;
  };
  // With all contents and names of calls as marks, one rendering tells most of what is shown. The number of calls
  // stands for the content.
  Chat marked = chat;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Value* calls = find(chat.messages[i], "tool_calls");
    if (is_empty(calls)) continue;
    std::vector<Value> named;
    for (const Value& call : calls->list().items) {
      const Value name = memory.text(mark_of(i, named.size()));
      const Value function = replaced(function_of(call), "name", &name, memory);
      named.push_back(&function_of(call) == &call ? function : replaced(call, "function", &function, memory));
    }
    const std::string content_mark = mark_of(i, named.size());
    const Value list = memory.list(std::move(named));
    marked.messages[i] = replaced(chat.messages[i], "tool_calls", &list, memory);
    const Value* content = find(chat.messages[i], "content");
    if (is_empty(content)) continue;
    const Value mark = content->is(Type::kList) ? text_parts(content_mark, memory) : memory.text(content_mark);
    marked.messages[i] = replaced(marked.messages[i], "content", &mark, memory);
  }
  const std::string shown = text_if_any(marked, false);
  const auto check = [&](size_t message, size_t call, const char* key, const Value* without, const auto&... what) {
    if (shown.find(mark_of(message, call)) != shown.npos) return;
    Chat other = chat;
    other.messages[message] = replaced(chat.messages[message], key, without, memory);
    if (text_if_any(other, false) != fitted.rendering.text) return;
    fail("message ", message + 1, ": ", what..., " not used by the model's chat template", kAdvice);
  };
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Value* calls = find(chat.messages[i], "tool_calls");
    if (is_empty(calls)) continue;
    const std::vector<Value>& items = calls->list().items;
    for (size_t k = 0; k < items.size(); ++k) {
      std::vector<Value> others = items;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
      const Value list = memory.list(std::move(others));
      if (items.size() == 1) {
        check(i, k, "tool_calls", nullptr, "\"tool_calls\" are");
      } else {
        check(i, k, "tool_calls", &list, "call ", k + 1, " of \"tool_calls\" is");
      }
    }
    const Value* content = find(chat.messages[i], "content");
    if (is_empty(content)) continue;
    const std::string text = content->is(Type::kList) ? joined_parts(*content, i) : content->text();
    const Value empty = memory.text("");
    if (text.find_first_not_of(" \t\r\n") != text.npos) {
      check(i, items.size(), "content", &empty, "\"content\" beside \"tool_calls\" is");
    }
  }
}

void ChatFitting::check_use(const Fitted& fitted, bool generation_prompt) const {
  const Chat& chat = fitted.chat;
  const auto check = [&](const Chat& other, const auto&... what) {
    if (text_if_any(other, generation_prompt) == fitted.rendering.text) {
      fail(what..., " not used by the model's chat template", kAdvice);
    }
  };
  for (const char* name : {"tools", "documents"}) {
    for (const auto& [other, value] : chat.variables) {
      if (other == name && jinja::is_true(value)) check(without_variable(chat, name), '"', name, "\" are");
    }
  }
  if (has(chat, "function_call")) {
    check(without(chat, "function_call"), "message ", number_with(chat, "function_call"), ": \"function_call\" is");
  }
  for (const char* key : kReasoningKeys) {
    if (has(chat, key)) check_reasoning(fitted, key, generation_prompt);
  }
}

void ChatFitting::check_reasoning(const Fitted& fitted, const std::string& key, bool generation_prompt) const {
  const Chat& chat = fitted.chat;
  if (text_if_any(without(chat, key), generation_prompt) != fitted.rendering.text) return;
  // Templates that show reasoning leave out the reasoning before the last question.
  Chat thought;
  thought.variables = chat.variables;
  thought.add("user", "?");
  thought.add("assistant", "!");
  const Value mark = thought.memory->text(kMark);
  thought.messages[1] = replaced(thought.messages[1], key, &mark, *thought.memory);
  if (text_if_any(thought, false).find(kMark) != std::string::npos) return;
  fail("message ", number_with(chat, key), ": \"", key, "\" is not used by the model's chat template", kAdvice);
}

void ChatFitting::check_shown(const Fitted& fitted, bool generation_prompt) const {
  const auto& [chat, rendering] = fitted;
  std::vector<bool> made(chat.messages.size(), false);
  for (const auto& part : rendering.parts) {
    if (part.message >= 0) made[static_cast<size_t>(part.message)] = true;
  }
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    if (made[i] || is_empty(find(chat.messages[i], "content"))) continue;
    Chat other = chat;
    other.messages.erase(other.messages.begin() + static_cast<std::ptrdiff_t>(i));
    if (text_if_any(other, generation_prompt) != rendering.text)
      continue;  // shown at another place, such as a system message
    const Value* role = find(chat.messages[i], "role");
    fail("message ", i + 1, ": the model's chat template does not show messages with the role ",
         role == nullptr ? "of this message" : json_of(*role, *chat.memory));
  }
}

}  // namespace mft
