#include "runtime/data/row.h"

#include <algorithm>
#include <cfloat>
#include <optional>

#include "runtime/core/error.h"

namespace mft {
namespace {

using Json = nlohmann::json;

constexpr const char* kWanted =
    "\"messages\", \"prompt\" and \"completion\", \"question\" and \"answer\", \"text\", or \"prompt\", \"chosen\" and "
    "\"rejected\"";

std::string shown(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

std::string string_of(const Json& json, const std::string& what) {
  if (!json.is_string()) fail(what, " should be a string, this is ", shown(json));
  return json.get<std::string>();
}

std::string string_of(const Json& row, const char* key) {
  return string_of(row.at(key), std::string("\"") + key + '"');
}

std::vector<Message> messages_of(const Json& list, const std::string& key) {
  if (!list.is_array() || list.empty()) {
    fail('"', key, "\" should be a non-empty list of {\"role\", \"content\"} objects");
  }
  std::vector<Message> messages;
  for (const Json& message : list) {
    const std::string what =
        "message " + std::to_string(messages.size() + 1) + (key == "messages" ? "" : " of \"" + key + '"');
    if (!message.is_object() || !message.contains("role") || !message.contains("content")) {
      fail(what, " should be an object with \"role\" and \"content\"");
    }
    messages.push_back(
        {string_of(message["role"], what + ": \"role\""), string_of(message["content"], what + ": \"content\"")});
  }
  return messages;
}

void check_turns(const std::vector<Message>& messages, size_t learned_from) {
  const auto from = messages.begin() + static_cast<std::ptrdiff_t>(std::min(learned_from, messages.size()));
  if (std::none_of(from, messages.end(), [](const Message& message) { return message.role == "assistant"; })) {
    fail("nothing to learn; a message with the role \"assistant\" is needed",
         learned_from > 0 ? " after message " + std::to_string(learned_from) : "");
  }
  if (messages[0].role == "assistant") {
    fail("message 1 has the role \"assistant\"; \"user\" or \"system\" should come first");
  }
}

bool same(const Message& one, const Message& other) { return one.role == other.role && one.content == other.content; }

/// Sides of messages, after those in "prompt" or after what both start with, as TRL has them.
PreferenceRow preference_of_chats(const Json& row) {
  std::vector<Message> sides[2] = {messages_of(row.at("chosen"), "chosen"),
                                   messages_of(row.at("rejected"), "rejected")};
  std::vector<Message> before;
  bool apart = false;  // whether `before` is not in the sides yet
  const Json* prompt = row.contains("prompt") ? &row["prompt"] : nullptr;
  if (prompt != nullptr && prompt->is_array()) {
    before = messages_of(*prompt, "prompt");
    for (const char* key : {"chosen", "rejected"}) {
      const std::string& role = sides[key[0] == 'r'].front().role;
      if (role != "assistant") {
        fail('"', key, "\" starts with the role ", Json(role).dump(),
             "; \"assistant\" should follow what is in \"prompt\"");
      }
    }
    apart = true;
  } else {
    const auto end = std::mismatch(sides[0].begin(), sides[0].end(), sides[1].begin(), sides[1].end(), same);
    before.assign(sides[0].begin(), end.first);
    if (before.empty() && prompt != nullptr) {
      before = {{"user", string_of(row, "prompt")}};
      apart = true;
    }
  }
  if (apart) {
    for (auto& side : sides) side.insert(side.begin(), before.begin(), before.end());
  }
  if (std::equal(sides[0].begin(), sides[0].end(), sides[1].begin(), sides[1].end(), same)) {
    fail("\"chosen\" and \"rejected\" are the same; nothing to prefer");
  }
  for (const auto& side : sides) check_turns(side, before.size());
  return {ChatRow{std::move(sides[0]), before.size()}, ChatRow{std::move(sides[1]), before.size()}};
}

PreferenceRow preference_of(const Json& row) {
  if (row["chosen"].is_array() || row["rejected"].is_array()) return preference_of_chats(row);
  if (!row.contains("prompt")) fail("\"chosen\" and \"rejected\" that are strings need a \"prompt\"");
  const std::string prompt = string_of(row, "prompt");
  return {PairRow{prompt, string_of(row, "chosen")}, PairRow{prompt, string_of(row, "rejected")}};
}

float weight_of(const Json& row) {
  if (!row.contains("weight")) return 1;
  const Json& json = row["weight"];
  const double value = json.is_number() ? json.get<double>() : -1;
  if (!(value >= 0 && value <= FLT_MAX)) {  // what a token file can hold
    fail("\"weight\" should be a finite number of at least 0, this is ", shown(json));
  }
  return static_cast<float>(value);
}

}  // namespace

Row parse_row(const Json& given) {
  if (!given.is_object()) fail("an object with ", kWanted, " is wanted, this is ", shown(given));
  Json row = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) row[key] = value;  // tables have all columns in every row
  }
  const float weight = weight_of(row);
  if (row.contains("chosen") && row.contains("rejected")) return {preference_of(row), weight};
  if (row.contains("messages")) {
    ChatRow chat{messages_of(row["messages"], "messages")};
    check_turns(chat.messages, 0);
    return {std::move(chat), weight};
  }
  for (const auto& [prompt, completion] : {std::pair("prompt", "completion"), std::pair("question", "answer")}) {
    if (row.contains(prompt) && row.contains(completion)) {
      return {PairRow{string_of(row, prompt), string_of(row, completion)}, weight};
    }
  }
  if (row.contains("text")) return {TextRow{string_of(row, "text")}, weight};
  std::string found;
  for (const auto& [key, value] : row.items()) found += (found.empty() ? "" : ", ") + Json(key).dump();
  fail("found ", found.empty() ? "nothing" : found, "; a row needs ", kWanted);
}

}  // namespace mft
