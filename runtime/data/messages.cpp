#include "runtime/data/messages.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/data/row_values.h"
#include "runtime/jinja/json.h"

namespace mft {
namespace {

using jinja::Dict;
using jinja::Memory;
using jinja::Type;
using jinja::Value;

/// ShareGPT's and OpenAI's names of roles.
const std::unordered_map<std::string_view, const char*>& roles() {
  static const std::unordered_map<std::string_view, const char*> names = {{"human", "user"},
                                                                          {"user", "user"},
                                                                          {"gpt", "assistant"},
                                                                          {"chatgpt", "assistant"},
                                                                          {"bard", "assistant"},
                                                                          {"bing", "assistant"},
                                                                          {"model", "assistant"},
                                                                          {"assistant", "assistant"},
                                                                          {"function_call", "assistant"},
                                                                          {"system", "system"},
                                                                          {"tool", "tool"},
                                                                          {"observation", "tool"},
                                                                          {"function_response", "tool"}};
  return names;
}

bool flag_of(const Value& message, const std::string& what) {
  const Value *weight = find(message, "weight"), *train = find(message, "train");
  if (weight != nullptr && !(weight->is_number() && (weight->number() == 0 || weight->number() == 1))) {
    fail(what, ": \"weight\" is ", shown(*weight), "; it must be 0 (not learned) or 1");
  }
  if (train != nullptr && !train->is(Type::kBool)) {
    fail(what, ": \"train\" is ", shown(*train), "; it must be true or false");
  }
  return !(weight != nullptr && weight->number() == 0) && !(train != nullptr && !is_true(*train));
}

void check_content(const Value& message, const std::string& what) {
  const Value* content = message.dict().find("content");
  const bool calls = find(message, "tool_calls") != nullptr || find(message, "function_call") != nullptr;
  if (content == nullptr || content->is(Type::kNone)) {
    if (!calls) fail(what, " must be an object with \"role\" and \"content\"");
  } else if (!content->is(Type::kText) && !content->is(Type::kList)) {
    fail(what, ": \"content\" is ", shown(*content), "; it must be a string or a list of parts");
  }
}

/// Converts {"from", "value"} to {"role", "content"}. A function call's text becomes a tool call.
Value from_share_gpt(const Value& message, const std::string& what, Memory& memory) {
  const std::string from = text_of(*find(message, "from"), what + ": \"from\"");
  const Value* value = find(message, "value");
  if (value == nullptr) fail(what, " must be an object with \"from\" and \"value\"");
  const auto role = roles().find(from);
  if (role == roles().end()) {
    fail(what, ": unknown role ", shown(*find(message, "from")),
         "; known: human, gpt, system, tool, function_call and observation");
  }
  Dict* made = memory.dict();
  made->set(memory.text("role"), memory.text(role->second), memory);
  if (from == "function_call") {
    const std::string text = text_of(*value, what + ": \"value\"");
    Value call;
    try {
      call = jinja::read_json(text, memory);
    } catch (const Error& error) {
      fail(what, ": a function call must be JSON with \"name\" and \"arguments\": ", error.what());
    }
    const std::vector<Value> calls = call.is(Type::kList) ? call.list().items : std::vector<Value>{call};
    std::vector<Value> wrapped;
    for (const Value& one : calls) {
      Dict* outer = memory.dict();
      outer->set(memory.text("type"), memory.text("function"), memory);
      outer->set(memory.text("function"), one, memory);
      wrapped.push_back(Value::of(outer));
    }
    made->set(memory.text("content"), memory.text(""), memory);
    made->set(memory.text("tool_calls"), memory.list(std::move(wrapped)), memory);
  } else {
    made->set(memory.text("content"), *value, memory);
  }
  for (const auto& [name, other] : message.dict().items()) {
    if (name.text() != "from" && name.text() != "value") made->set(name, other, memory);
  }
  return Value::of(made);
}

/// Removes the keys that only control learning, and keys that tables fill with null.
Value for_template(const Value& message, Memory& memory) {
  Dict* made = memory.dict();
  for (const auto& [name, value] : message.dict().items()) {
    const std::string& key = name.text();
    const bool empty = value.is(Type::kNone) && key != "content";
    if (key != "weight" && key != "train" && !empty) made->set(name, value, memory);
  }
  return Value::of(made);
}

}  // namespace

void Messages::add(const std::string& role, const Value& content, Memory& memory) {
  Dict* message = memory.dict();
  message->set(memory.text("role"), memory.text(role), memory);
  message->set(memory.text("content"), content, memory);
  values.push_back(Value::of(message));
  learned.push_back(role == "assistant");
  masked.push_back(false);
}

void Messages::append(const Messages& others) {
  values.insert(values.end(), others.values.begin(), others.values.end());
  learned.insert(learned.end(), others.learned.begin(), others.learned.end());
  masked.insert(masked.end(), others.masked.begin(), others.masked.end());
}

Messages messages_of(const Value& list, const std::string& key, Memory& memory) {
  if (!list.is(Type::kList) || list.list().items.empty()) {
    fail('"', key, "\" must be a non-empty list of {\"role\", \"content\"} objects");
  }
  Messages messages;
  for (const Value& given : list.list().items) {
    const std::string what =
        "message " + std::to_string(messages.values.size() + 1) + (key == "messages" ? "" : " of \"" + key + '"');
    if (!given.is(Type::kDict)) fail(what, " must be an object with \"role\" and \"content\"");
    Value message = given;
    if (find(given, "role") == nullptr && find(given, "from") != nullptr) message = from_share_gpt(given, what, memory);
    if (find(message, "role") == nullptr) fail(what, " must be an object with \"role\" and \"content\"");
    const std::string role = text_of(*find(message, "role"), what + ": \"role\"");
    check_content(message, what);
    messages.masked.push_back(!flag_of(message, what));
    messages.learned.push_back(!messages.masked.back() && role == "assistant");
    messages.values.push_back(for_template(message, memory));
  }
  return messages;
}

void learn_from(Messages& messages, size_t count) {
  std::fill_n(messages.learned.begin(), std::min(count, messages.learned.size()), false);
}

}  // namespace mft
