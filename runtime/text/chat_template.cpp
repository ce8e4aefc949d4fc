#include "runtime/text/chat_template.h"

#include <algorithm>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/jinja/json.h"
#include "runtime/text/chat_fitting.h"

namespace mft {
namespace {

using jinja::Rendering;
using jinja::Type;
using jinja::Value;

constexpr const char* kRefuses = "the model's chat template rejects these messages: ";

std::tm date_of(const std::string& text) {
  std::tm date{};
  if (text.empty()) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &date);
    return date;
  }
  char rest = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d%c", &date.tm_year, &date.tm_mon, &date.tm_mday, &rest) == 3) {
    const std::tm given{0, 0, 12, date.tm_mday, date.tm_mon - 1, date.tm_year - 1900, 0, 0, -1, 0, nullptr};
    date = given;
    if (std::mktime(&date) != -1 && date.tm_mday == given.tm_mday && date.tm_mon == given.tm_mon) return date;
  }
  fail("date ", text, ": must have the form YYYY-MM-DD");
}

size_t common_length(std::string_view one, std::string_view other) {
  const size_t most = std::min(one.size(), other.size());
  return static_cast<size_t>(
      std::mismatch(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(most), other.begin()).first - one.begin());
}

bool starts_with(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

std::string_view role_of(const Value& message) {
  const Value* role = message.dict().find("role");
  return role != nullptr && role->is(Type::kText) ? std::string_view(role->text()) : std::string_view();
}

/// The bytes of the text that a message produced, from its first to its last part.
Answer region_of(const Rendering& rendering, size_t message) {
  Answer region{message, rendering.text.size(), 0};
  for (const Rendering::Part& part : rendering.parts) {
    if (part.message != static_cast<int>(message)) continue;
    region.begin = std::min(region.begin, part.begin);
    region.end = std::max(region.end, part.end);
  }
  return region;
}

/// The text after the last message.
std::string_view tail_of(const Rendering& rendering) {
  size_t end = 0;
  for (const Rendering::Part& part : rendering.parts) {
    if (part.message >= 0) end = part.end;
  }
  return std::string_view(rendering.text).substr(end);
}

/// The first `count` messages.
Chat beginning_of(const Chat& chat, size_t count) {
  Chat beginning = chat;
  beginning.messages.resize(count);
  return beginning;
}

/// Returns the chat with a message's content, and its other texts unless `content_only`, replaced by a mark.
Chat marked(const Chat& chat, size_t message, bool content_only = false) {
  Chat other = chat;
  jinja::Dict* dict = other.memory->dict();
  for (const auto& [key, value] : chat.messages[message].dict().items()) {
    const bool is_content = key.text() == "content";
    const bool other_text = !content_only && key.text() != "role" && value.is(Type::kText) && !value.text().empty();
    const bool says = other_text || (is_content && value.is(Type::kText));
    if (is_content && value.is(Type::kList)) {
      dict->set(key, text_parts(kMark, *other.memory), *other.memory);
    } else {
      dict->set(key, says ? other.memory->text(kMark) : value, *other.memory);
    }
  }
  other.messages[message] = Value::of(dict);
  return other;
}

std::string shown(std::string_view text) { return "\"" + one_line(text.substr(0, 40)) + "\""; }

}  // namespace

Value text_parts(std::string text, jinja::Memory& memory) {
  jinja::Dict* part = memory.dict();
  part->set(memory.text("type"), memory.text("text"), memory);
  part->set(memory.text("text"), memory.text(std::move(text)), memory);
  return memory.list({Value::of(part)});
}

void Chat::add(std::string role, std::string content) {
  jinja::Dict* message = memory->dict();
  message->set(memory->text("role"), memory->text(std::move(role)), *memory);
  message->set(memory->text("content"), memory->text(std::move(content)), *memory);
  messages.push_back(Value::of(message));
}

ChatTemplate::ChatTemplate(std::string_view source, const std::map<std::string, std::string>& tokens,
                           const TemplateSettings& settings)
    : template_(std::make_shared<const jinja::Template>(source)) {
  const auto memory = std::make_shared<jinja::Memory>();
  for (const auto& [name, text] : tokens) variables_.emplace_back(name, memory->text(text));
  memories_.push_back(memory);
  // Templates test `is none`, which is false for an undefined variable.
  for (const char* name : {"tools", "documents"}) variables_.emplace_back(name, Value::none());
  *this = with(settings);
}

ChatTemplate ChatTemplate::with(const TemplateSettings& settings) const {
  ChatTemplate other = *this;
  other.date_ = date_of(settings.date);
  if (settings.variables.empty()) return other;
  try {
    const auto memory = std::make_shared<jinja::Memory>();
    const Value given = jinja::read_json(settings.variables, *memory);
    if (!given.is(Type::kDict)) fail("must be a JSON object");
    for (const auto& [name, value] : given.dict().items()) {
      check_variable(name.text());
      other.variables_.emplace_back(name.text(), value);
    }
    other.memories_.push_back(memory);
  } catch (const Error& error) {
    fail("chat_template_kwargs ", settings.variables, ": ", error.what());
  }
  return other;
}

void ChatTemplate::check_variable(const std::string& name) const {
  for (const char* own : {"messages", "add_generation_prompt"}) {
    if (name == own) fail(name, " cannot be set");
  }
  if (!template_->reads(name)) fail("the model's chat template has no variable ", name);
}

void ChatTemplate::check_variables(const Chat& chat) const {
  for (const auto& [name, value] : chat.variables) {
    if (name != "tools" && name != "documents") check_variable(name);  // these are checked by their effect
  }
}

Rendering ChatTemplate::render(const Chat& chat, bool generation_prompt) const {
  jinja::Memory memory;
  Variables variables = variables_;
  variables.insert(variables.end(), chat.variables.begin(), chat.variables.end());
  const Value messages = memory.list(chat.messages);
  variables.emplace_back("messages", messages);
  variables.emplace_back("add_generation_prompt", Value::of(generation_prompt));
  try {
    return template_->render(variables, &messages.list(), date_, memory);
  } catch (const jinja::OverBudget& error) {
    throw jinja::OverBudget(kRefuses + std::string(error.what()));
  } catch (const Error& error) {
    fail(kRefuses, error.what());
  }
}

std::string ChatTemplate::prompt(const Chat& chat) const {
  if (chat.messages.empty()) fail("the chat has no messages to answer");
  check_variables(chat);
  return ChatFitting(*this).fit(chat, true).rendering.text;
}

RenderedChat ChatTemplate::answers(const Chat& given) const {
  check_variables(given);
  const auto [chat, rendering] = ChatFitting(*this).fit(given, false);
  RenderedChat found{rendering.text, {}};
  std::vector<size_t> messages;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    if (role_of(chat.messages[i]) == "assistant") messages.push_back(i);
  }
  if (!rendering.marks.empty()) {
    found.answers = marked_answers(rendering, messages);
    return found;
  }
  for (const size_t message : messages) {
    for (const Answer& answer : without_results(chat, rendering, answer_of(chat, rendering, message))) {
      if (answer.end > answer.begin) found.answers.push_back(answer);
    }
  }
  return found;
}

std::vector<Answer> ChatTemplate::marked_answers(const Rendering& rendering,
                                                 const std::vector<size_t>& messages) const {
  std::vector<Answer> answers;
  const auto outside = [](const Rendering::Part& mark) { return mark.message < 0; };
  const bool all_outside = std::all_of(rendering.marks.begin(), rendering.marks.end(), outside);
  const bool in_order = all_outside && rendering.marks.size() == messages.size();
  for (const Rendering::Part& mark : rendering.marks) {
    size_t message = static_cast<size_t>(mark.message);
    if (in_order) {
      message = messages[answers.size()];
    } else if (outside(mark)) {
      // What follows the loop over the messages, such as a token that ends the text, is of the last one marked there.
      if (all_outside || answers.empty()) {
        fail("the model's chat template marks ", rendering.marks.size(), " texts as the assistant's, of ",
             messages.size(), " messages");
      }
      message = answers.back().message;
    }
    answers.push_back({message, mark.begin, mark.end});
  }
  return answers;
}

Answer ChatTemplate::answer_of(const Chat& chat, const Rendering& rendering, size_t message) const {
  Answer answer = region_of(rendering, message);
  if (answer.begin >= answer.end) return answer_by_prefixes(chat, rendering.text, message);
  const std::string_view text = rendering.text;
  answer.begin += head_size(text.substr(answer.begin, answer.end - answer.begin), chat, message);
  if (message + 1 == chat.messages.size()) answer.end = text.size();
  return answer;
}

std::vector<Answer> ChatTemplate::without_results(const Chat& chat, const Rendering& rendering,
                                                  const Answer& answer) const {
  const size_t message = answer.message;
  const auto is_result = [&](size_t i) {
    const Answer region = region_of(rendering, i);
    return role_of(chat.messages[i]) == "tool" && region.begin >= region.end;
  };
  size_t next = message + 1;
  while (next < chat.messages.size() && is_result(next)) ++next;
  if (next == message + 1) return {answer};
  const size_t result_at = region_in(marked(chat, message + 1, true), message).find(kMark);
  if (result_at == std::string::npos) return {answer};
  // Content may follow the results. It is marked, because its beginning may be that of a result by chance.
  const Value* content = chat.messages[message].dict().find("content");
  const bool has_content = content != nullptr && jinja::is_true(*content);
  const Chat marked_chat = has_content ? marked(chat, message, true) : chat;
  const size_t content_at = has_content ? region_in(marked_chat, message).find(kMark) : std::string::npos;
  const bool follows = content_at != std::string::npos && content_at > result_at;
  const Chat& with_results = follows ? marked_chat : chat;
  Chat called = with_results;
  const auto results = called.messages.begin() + static_cast<std::ptrdiff_t>(message) + 1;
  called.messages.erase(results, results + static_cast<std::ptrdiff_t>(next - message) - 1);
  const size_t call_size = common_length(region_in(with_results, message), region_in(called, message));
  const size_t begin = region_of(rendering, message).begin;
  const Answer call{message, answer.begin, std::max(answer.begin, begin + std::min(call_size, result_at))};
  if (!follows) return {call};
  return {call, {message, begin + content_at, answer.end}};
}

size_t ChatTemplate::head_size(std::string_view region, const Chat& chat, size_t message) const {
  const auto [head, added] = heads_of(chat, message);
  for (const std::string& one : {head, added}) {
    if (!one.empty() && starts_with(region, one)) return one.size();
  }
  if (head.empty())
    return region_in(marked(chat, message), message).find(kMark) == std::string::npos ? region.size() : 0;
  // The prompt continues differently than the answer, or text precedes it. Their common beginning may include words of
  // the answer by chance. With a mark instead of the answer, it has only the template's text.
  const std::string marked_region = region_in(marked(chat, message), message);
  const std::string_view lead = std::string_view(marked_region).substr(0, marked_region.find(kMark));
  const size_t place = lead.rfind(head);
  if (place != lead.npos && starts_with(region, lead.substr(0, place + head.size()))) return place + head.size();
  const size_t common = common_length(region, head);
  return marked_region.empty() ? common : std::min(common, common_length(marked_region, head));
}

std::pair<std::string, std::string> ChatTemplate::heads_of(const Chat& chat, size_t message) const {
  Chat question;
  if (message > 0) {
    question = beginning_of(chat, message);
  } else {
    question.variables = chat.variables;
    question.add("user", kMark);
  }
  try {
    const Rendering prompt = render(question, true);
    const std::string asked = render(question, false).text;
    const std::string_view behind_last = tail_of(prompt);
    const std::string_view added = std::string_view(prompt.text).substr(common_length(prompt.text, asked));
    return {std::string(behind_last), std::string(added)};
  } catch (const jinja::OverBudget&) {
    throw;
  } catch (const Error&) {  // the template requires another order of turns
    if (message > 0) return heads_of(beginning_of(chat, 0), 0);
    return {"", ""};
  }
}

std::string ChatTemplate::region_in(const Chat& chat, size_t message) const {
  try {
    const Rendering rendering = render(chat, false);
    const Answer region = region_of(rendering, message);
    return region.begin < region.end ? rendering.text.substr(region.begin, region.end - region.begin) : "";
  } catch (const jinja::OverBudget&) {
    throw;
  } catch (const Error&) {  // the template requires another message at this place
    return "";
  }
}

Answer ChatTemplate::answer_by_prefixes(const Chat& chat, const std::string& text, size_t message) const {
  const std::string asked = render(beginning_of(chat, message), true).text;
  const std::string answered = render(beginning_of(chat, message + 1), false).text;
  if (starts_with(text, answered) && starts_with(answered, asked)) return {message, asked.size(), answered.size()};
  const bool prompt_differs = starts_with(text, answered);
  const std::string_view one = prompt_differs ? answered : text, other = prompt_differs ? asked : answered;
  const size_t common = common_length(one, other);
  fail("cannot determine where the answer of message ", message + 1, " begins in the model's chat template: the ",
       prompt_differs ? "answered" : "whole", " chat has ", shown(one.substr(common)), " where the ",
       prompt_differs ? "prompt" : "chat up to that message", " has ", shown(other.substr(common)));
}

}  // namespace mft
