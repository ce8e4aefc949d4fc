#include "runtime/data/row.h"

#include <algorithm>
#include <cctype>
#include <cfloat>
#include <cmath>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/messages.h"
#include "runtime/data/row_values.h"
#include "runtime/jinja/json.h"

namespace mft {
namespace {

using jinja::Memory;
using jinja::Type;
using jinja::Value;

constexpr const char* kWanted =
    "\"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" and \"output\", \"text\", or "
    "\"chosen\" and \"rejected\"";
/// Keys that would be lost: inputs that are not text, and outdated keys.
constexpr const char* kUnsupported[] = {"images", "image", "audio", "audios", "videos", "video", "functions"};

/// A row that is being parsed.
struct Source {
  Value row;
  RowKeys keys;
  Chat chat;  // memory and variables that all its chats share

  const Value* get(std::string_view key) const { return find(row, key); }
  bool has(std::string_view key) const { return get(key) != nullptr; }
  /// Whether there is a value that is not an empty text or list.
  bool filled(std::string_view key) const { return has(key) && jinja::is_true(*get(key)); }
  std::string text(std::string_view key) const { return text_of(*get(key), '"' + std::string(key) + '"'); }
  Memory& memory() const { return *chat.memory; }
};

float weight_of(const Source& source) {
  const Value* weight = source.get("weight");
  if (weight == nullptr) return 1;
  const double value = weight->is_number() && !weight->is(Type::kBool) ? weight->number() : -1;
  if (!(value >= 0 && value <= FLT_MAX)) {  // the range of token files
    fail("\"weight\" is ", shown(*weight), "; it must be a finite number of at least 0");
  }
  return static_cast<float>(value);
}

/// Whether the row's answer is liked, as in TRL. A "label" that is neither true nor false is a column of something
/// else. Throws if it is one of these as text: ignored, a disliked answer would be learned.
std::optional<bool> label_of(const Source& source) {
  const Value* label = source.get("label");
  if (label == nullptr) return std::nullopt;
  if (label->is(Type::kBool)) return jinja::is_true(*label);
  if (label->is(Type::kText)) {
    std::string lower = label->text();
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == "true" || lower == "false") {
      fail("\"label\" is ", shown(*label), "; it must be true or false, not a string");
    }
  }
  return std::nullopt;
}

/// A value that may also be JSON text, because columns of tables have one type.
Value decoded(const Value& value, const std::string& key, Memory& memory) {
  if (!value.is(Type::kText)) return value;
  try {
    return jinja::read_json(value.text(), memory);
  } catch (const Error& error) {
    fail('"', key, "\" is a string that is not valid JSON: ", error.what());
  }
}

/// Adds the "tools" or "documents" of a row, or of OpenAI's "input", to the variables. Tools may be JSON text each.
void add_list(const Value& from, const std::string& key, Memory& memory, Variables& variables) {
  const Value* given = find(from, key);
  if (given == nullptr) return;
  const Value list = decoded(*given, key, memory);
  if (!list.is(Type::kList)) fail('"', key, "\" is ", shown(list), "; it must be a list");
  std::vector<Value> items = list.list().items;
  for (size_t i = 0; key == "tools" && i < items.size(); ++i) {
    items[i] = decoded(items[i], key, memory);
    if (!items[i].is(Type::kDict)) {
      fail("item ", i + 1, " of \"tools\" is ", shown(items[i]), "; it must be an object with a \"function\"");
    }
  }
  if (!items.empty()) variables.emplace_back(key, memory.list(std::move(items)));
}

/// The variables of a row for the template, besides its messages.
Variables variables_of(const Source& source) {
  Variables variables;
  for (const char* key : {"tools", "documents"}) add_list(source.row, key, source.memory(), variables);
  if (const Value* given = source.get("chat_template_kwargs")) {
    const Value named = decoded(*given, "chat_template_kwargs", source.memory());
    if (!named.is(Type::kDict)) fail("\"chat_template_kwargs\" is ", shown(named), "; it must be an object");
    for (const auto& [name, value] : named.dict().items()) {
      if (!value.is(Type::kNone)) variables.emplace_back(name.text(), value);
    }
  }
  return variables;
}

ChatRow chat_row(const Source& source, Messages messages) {
  ChatRow row{source.chat, std::move(messages.learned), std::move(messages.masked)};
  row.chat.messages = std::move(messages.values);
  return row;
}

void check_answered(const Messages& messages, size_t learned_from) {
  for (size_t i = learned_from; i < messages.values.size(); ++i) {
    if (find(messages.values[i], "role")->text() == "assistant") return;
  }
  fail("nothing to learn; the row must have a message with the role \"assistant\"",
       learned_from > 0 ? " after message " + std::to_string(learned_from) : "");
}

/// A label is of a chat's last answer: what follows the last message of the user.
void learn_last_answer(Messages& messages) {
  if (find(messages.values.back(), "role")->text() != "assistant") {
    fail("the last message must have the role \"assistant\", because \"label\" says whether its answer is liked");
  }
  for (size_t i = messages.values.size(); i-- > 0;) {
    if (find(messages.values[i], "role")->text() == "user") return learn_from(messages, i);
  }
}

/// Returns the messages, with the row's "system" in front if they do not begin with a system message.
Messages with_system(const Source& source, const Messages& given, const std::string& key) {
  if (!source.filled("system")) return given;
  const std::string system = source.text("system");
  const Value& first = given.values.front();
  Messages messages;
  if (find(first, "role")->text() == "system") {
    const Value* content = find(first, "content");
    if (content == nullptr || !content->is(Type::kText) || content->text() != system) {
      fail("\"system\" and the system message of \"", key, "\" differ; keep one");
    }
  } else {
    messages.add("system", source.memory().text(system), source.memory());
  }
  messages.append(given);
  return messages;
}

Messages conversation(const Source& source, const Value& list, const std::string& key) {
  Messages messages = with_system(source, messages_of(list, key, source.memory()), key);
  check_answered(messages, 0);
  if (label_of(source)) learn_last_answer(messages);
  return messages;
}

/// Throws if one of the keys has a value, which would be lost, because the prompt is that of `prompt`.
void refuse_beside(const Source& source, const std::string& prompt, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (!source.filled(key)) continue;
    fail('"', key, "\" is not used beside \"", prompt, "\"; add its text to \"", prompt, "\", or remove it");
  }
}

/// "instruction", followed by Alpaca's "input" or Dolly's "context" if there is one.
std::string instruction_of(const Source& source) {
  std::string prompt = source.text("instruction");
  if (source.filled("input") && source.filled("context")) fail("the row has both \"input\" and \"context\"; keep one");
  for (const char* key : {"input", "context"}) {
    if (source.filled(key)) prompt += "\n" + source.text(key);
  }
  return prompt;
}

/// A text that answers another one, and the row's "system" if it has one.
AnswerRow text_row(const Source& source, const std::string& prompt, const std::string& completion) {
  if (!source.filled("system")) return PairRow{prompt, completion, source.chat};
  Memory& memory = source.memory();
  Messages messages;
  messages.add("system", memory.text(source.text("system")), memory);
  messages.add("user", memory.text(prompt), memory);
  messages.add("assistant", memory.text(completion), memory);
  return chat_row(source, std::move(messages));
}

Row row_of(AnswerRow answer) {
  return std::visit([](auto& one) { return Row{std::move(one), 1, ""}; }, answer);
}

/// Instruction, input and output. "history" has the earlier turns, as pairs of a question and its answer.
Row alpaca_row(const Source& source, const std::string& output) {
  const std::string prompt = instruction_of(source);
  if (!source.filled("history")) return row_of(text_row(source, prompt, source.text(output)));
  Memory& memory = source.memory();
  Messages messages;
  if (source.filled("system")) messages.add("system", memory.text(source.text("system")), memory);
  for (const Value& turn : jinja::items_of(*source.get("history"), memory)) {
    const bool pair = turn.is(Type::kList) && turn.list().items.size() == 2;
    if (!pair) fail("\"history\" must be a list of pairs of strings");
    for (size_t i = 0; i < 2; ++i) {
      messages.add(i == 0 ? "user" : "assistant", memory.text(text_of(turn.list().items[i], "a turn of \"history\"")),
                   memory);
    }
  }
  messages.add("user", memory.text(prompt), memory);
  messages.add("assistant", memory.text(source.text(output)), memory);
  if (label_of(source)) learn_last_answer(messages);
  return {chat_row(source, std::move(messages)), 1, ""};
}

/// A prompt and a completion, both strings or both messages, as in TRL.
Row pair_row(const Source& source, const std::string& prompt, const std::string& completion) {
  if (!source.get(prompt)->is(Type::kList)) {
    return row_of(text_row(source, source.text(prompt), source.text(completion)));
  }
  Messages messages = with_system(source, messages_of(*source.get(prompt), prompt, source.memory()), prompt);
  const size_t learned_from = messages.values.size();
  messages.append(messages_of(*source.get(completion), completion, source.memory()));
  check_answered(messages, learned_from);
  learn_from(messages, learned_from);
  return {chat_row(source, std::move(messages)), 1, ""};
}

bool same(const Value& one, const Value& other, Memory& memory) { return jinja::equal(one, other, memory); }

/// The prompt of a preference, and its key.
struct Prompt {
  std::string key;
  Value value;
};

/// Throws if the row has a question that is not used as the prompt.
void refuse_other_prompts(const Source& source) {
  for (const char* key : {"question", "instruction", "input", "context", "messages", "conversations", "history"}) {
    if (source.filled(key)) {
      fail('"', key, "\" is not used beside \"chosen\" and \"rejected\"; rename it to \"prompt\", or remove it");
    }
  }
}

/// The prompt under the key "prompt", or another key that the user set.
std::optional<Prompt> prompt_of(const Source& source) {
  const std::string key = source.keys.prompt.empty() ? "prompt" : source.keys.prompt;
  return source.has(key) ? std::optional(Prompt{key, *source.get(key)}) : std::nullopt;
}

/// The prompt of preferences without "prompt".
std::optional<Prompt> question_of(const Source& source) {
  const bool question = source.filled("question"), instruction = source.filled("instruction");
  if (question && instruction) fail("\"question\" and \"instruction\" cannot both be the prompt; keep one");
  if (question) return Prompt{"question", *source.get("question")};
  if (instruction) return Prompt{"instruction", source.memory().text(instruction_of(source))};
  return std::nullopt;
}

/// The text of a prompt. Throws if columns beside it would be lost.
std::string prompt_text(const Source& source, const Prompt& prompt) {
  if (source.keys.prompt.empty()) {
    refuse_beside(source, prompt.key, {"history"});
    if (prompt.key != "instruction") refuse_beside(source, prompt.key, {"input", "context"});
  }
  return text_of(prompt.value, '"' + prompt.key + '"');
}

/// Two chats that begin with the same `prompt`, or with their common beginning.
PreferenceRow preferred_chats(const Source& source, std::optional<Prompt> prompt, const std::string& chosen,
                              const std::string& rejected) {
  Memory& memory = source.memory();
  Messages sides[2] = {messages_of(*source.get(chosen), chosen, memory),
                       messages_of(*source.get(rejected), rejected, memory)};
  const size_t most = std::min(sides[0].values.size(), sides[1].values.size());
  size_t common = 0;
  while (common < most && same(sides[0].values[common], sides[1].values[common], memory)) ++common;
  if (!prompt && common == 0) prompt = question_of(source);
  Messages before;
  bool apart = false;  // whether `before` is not part of the sides yet
  if (prompt && prompt->value.is(Type::kList)) {
    before = messages_of(prompt->value, prompt->key, memory);
    for (const Messages& side : sides) {
      const Value& role = *find(side.values.front(), "role");
      if (role.text() != "assistant") {
        fail('"', &side == sides ? chosen : rejected, "\" starts with the role ", shown(role),
             "; it must start with \"assistant\", because it follows \"", prompt->key, '"');
      }
    }
    apart = true;
  } else {  // data sets may repeat the question as a string, which TRL ignores too
    before.values.assign(sides[0].values.begin(), sides[0].values.begin() + static_cast<std::ptrdiff_t>(common));
    before.learned.assign(common, false);
    before.masked.assign(common, false);
    if (common == 0 && prompt) {
      before.add("user", memory.text(prompt_text(source, *prompt)), memory);
      apart = true;
    } else if (common == 0) {
      refuse_other_prompts(source);
    }
  }
  for (Messages& side : sides) {
    if (apart) {
      Messages whole = before;
      whole.append(side);
      side = std::move(whole);
    }
  }
  if (same(memory.list(sides[0].values), memory.list(sides[1].values), memory)) {
    fail('"', chosen, "\" and \"", rejected, "\" are the same; they must differ");
  }
  for (Messages& side : sides) {
    const size_t size = side.values.size();
    side = with_system(source, side, apart ? prompt->key : &side == sides ? chosen : rejected);
    const size_t learned_from = before.values.size() + (side.values.size() - size);
    check_answered(side, learned_from);
    learn_from(side, learned_from);
  }
  return {chat_row(source, std::move(sides[0])), chat_row(source, std::move(sides[1]))};
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Two texts after the same prompt. Without a prompt, the words that both begin with are the prompt; a blank after it
/// belongs to the answers.
PreferenceRow preferred_texts(const Source& source, std::optional<Prompt> prompt) {
  const std::string chosen = source.text("chosen"), rejected = source.text("rejected");
  if (!prompt) prompt = question_of(source);
  if (prompt) {
    const std::string before = prompt_text(source, *prompt);
    return {text_row(source, before, chosen), text_row(source, before, rejected)};
  }
  refuse_other_prompts(source);
  if (chosen == rejected) fail("\"chosen\" and \"rejected\" are the same; they must differ");
  size_t common = 0;
  while (common < std::min(chosen.size(), rejected.size()) && chosen[common] == rejected[common]) ++common;
  // Back to the last blank, so that no word is split.
  const auto word_ends = [&](const std::string& text) { return common == text.size() || is_blank(text[common]); };
  while (common > 0 && !is_blank(chosen[common - 1]) && !(word_ends(chosen) && word_ends(rejected))) --common;
  if (common > 0 && chosen[common - 1] == ' ') --common;
  if (common == 0) fail("\"chosen\" and \"rejected\" have no first word in common; add a \"prompt\"");
  return {text_row(source, chosen.substr(0, common), chosen.substr(common)),
          text_row(source, rejected.substr(0, common), rejected.substr(common))};
}

/// OpenAI's form: {"input": {"messages"}, "preferred_output", "non_preferred_output"}.
PreferenceRow preferred_outputs(const Source& source) {
  const Value* input = source.get("input");
  const Value* prompt = input == nullptr ? nullptr : find(*input, "messages");
  if (prompt == nullptr) fail("\"preferred_output\" requires an \"input\" with \"messages\"");
  Source with_tools = source;
  add_list(*input, "tools", source.memory(), with_tools.chat.variables);
  return preferred_chats(with_tools, Prompt{"messages", *prompt}, "preferred_output", "non_preferred_output");
}

bool has_sides(const Source& source) { return source.has("chosen") && source.has("rejected"); }

std::optional<Row> preference_of(const Source& source) {
  if (source.has("preferred_output") && source.has("non_preferred_output")) {
    return Row{preferred_outputs(source), 1, "OpenAI preferences"};
  }
  if (!has_sides(source)) return std::nullopt;
  const std::optional<Prompt> prompt = prompt_of(source);
  if (source.get("chosen")->is(Type::kList) || source.get("rejected")->is(Type::kList)) {
    return Row{preferred_chats(source, prompt, "chosen", "rejected"), 1, "preferences"};
  }
  return Row{preferred_texts(source, prompt), 1, "preferences"};
}

/// A row with custom columns, set by messages_key, prompt_key and completion_key. Other columns are ignored,
/// except "system".
std::optional<Row> named_row(const Source& source) {
  const RowKeys& keys = source.keys;
  for (const std::string& key : {keys.messages, keys.prompt, keys.completion}) {
    if (!key.empty() && !source.has(key)) fail("\"", key, "\" is missing, but is set as the name of a column");
  }
  if (!keys.messages.empty()) {
    return Row{chat_row(source, conversation(source, *source.get(keys.messages), keys.messages)), 1, "chat messages"};
  }
  if (keys.completion.empty() && (keys.prompt.empty() || has_sides(source))) return std::nullopt;
  const std::string prompt = keys.prompt.empty() ? "prompt" : keys.prompt;
  const std::string completion = keys.completion.empty() ? "completion" : keys.completion;
  for (const std::string& key : {prompt, completion}) {
    if (!source.has(key)) fail("\"", key, "\" is missing");
  }
  Row row = pair_row(source, prompt, completion);
  row.form = prompt + " and " + completion;
  return row;
}

std::optional<Row> answered_row(const Source& source) {
  if (source.has("messages")) {
    return Row{chat_row(source, conversation(source, *source.get("messages"), "messages")), 1, "chat messages"};
  }
  if (source.has("conversations")) {
    return Row{chat_row(source, conversation(source, *source.get("conversations"), "conversations")), 1,
               "ShareGPT conversations"};
  }
  static constexpr std::pair<const char*, const char*> kPairs[] = {
      {"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}};
  for (const auto& [prompt, completion] : kPairs) {
    if (!source.has(prompt) || !source.has(completion)) continue;
    refuse_beside(source, prompt, {"input", "context", "history"});
    Row row = pair_row(source, prompt, completion);
    row.form = std::string(prompt) + " and " + completion;
    return row;
  }
  for (const char* output : {"output", "response"}) {
    if (!source.has("instruction") || !source.has(output)) continue;
    Row row = alpaca_row(source, output);
    row.form = "Alpaca instructions";
    return row;
  }
  if (source.has("text")) {
    if (!source.chat.variables.empty()) fail('"', source.chat.variables[0].first, "\" cannot be used with \"text\"");
    return Row{TextRow{source.text("text")}, 1, "text"};
  }
  return std::nullopt;
}

/// Parses a row's JSON object and the variables besides its messages.
Source source_of(std::string_view json, const RowKeys& keys) {
  Source source{{}, keys, {}};
  try {
    source.row = jinja::read_json(json, source.memory());
  } catch (const Error& error) {
    fail("not JSON; a row must be one JSON object on one line (", error.what(), ")");
  }
  if (!source.row.is(Type::kDict)) fail("the row is ", shown(source.row), "; it must be an object with ", kWanted);
  for (const char* key : kUnsupported) {
    if (source.has(key) && jinja::is_true(*source.get(key))) fail('"', key, "\" is not supported; remove it");
  }
  source.chat.variables = variables_of(source);
  return source;
}

}  // namespace

Chat parse_chat(std::string_view json) {
  const Source source = source_of(json, {});
  if (!source.has("messages")) fail("a chat must have \"messages\"");
  Chat chat = source.chat;
  chat.messages = messages_of(*source.get("messages"), "messages", source.memory()).values;
  return chat;
}

Row parse_row(std::string_view json, const RowKeys& keys) {
  const Source source = source_of(json, keys);
  const float weight = weight_of(source);
  std::optional<Row> row = named_row(source);
  if (!row) row = preference_of(source);
  if (!row) row = answered_row(source);
  if (!row) {
    std::string found;
    for (const auto& [key, value] : source.row.dict().items()) {
      if (!value.is(Type::kNone)) found += (found.empty() ? "" : ", ") + shown(key);
    }
    fail("the row has ", found.empty() ? "no keys" : found, "; it must have ", kWanted);
  }
  row->weight = weight;
  if (!row->preference() && !std::holds_alternative<TextRow>(row->content)) row->label = label_of(source);
  return std::move(*row);
}

}  // namespace mft
