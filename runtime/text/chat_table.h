#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mft {

struct Message {
  std::string role, content;  // role: system, user or assistant
};

/// A model's chat template as export compiled it for devices (mobile_ft/chat_table.py): the texts that stand between
/// messages, by the turns around them.
class ChatTable {
 public:
  /// Throws nlohmann::json::exception where a part is missing or of another type.
  explicit ChatTable(const nlohmann::json& json);

  /// The first `count` messages as the template renders them, and with `prompt` what begins an answer. Throws Error
  /// where the template has no such turns, or treats what a message says apart.
  std::string render(const std::vector<Message>& messages, size_t count, bool prompt) const;

 private:
  std::string shown(const Message& message, const std::pair<std::string, std::string>& ends) const;

  std::unordered_map<std::string, std::string> gaps_;
  std::unordered_map<std::string, std::pair<std::string, std::string>> stripped_;
  std::vector<std::string> refused_;
};

}  // namespace mft
