#pragma once

#include <string>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft {

/// Messages of a row as templates take them, and which are to be learned: the assistant's, but for those whose "weight"
/// is 0 or whose "train" is false.
struct Messages {
  std::vector<jinja::Value> values;
  std::vector<bool> learned;

  void add(const std::string& role, const jinja::Value& content, jinja::Memory& memory);
  void append(const Messages& others);
};

/// OpenAI's messages, {"role", "content"}, or ShareGPT's, {"from", "value"}, with their usual names of roles. `key` is
/// what holds them, for errors. Throws Error.
Messages messages_of(const jinja::Value& list, const std::string& key, jinja::Memory& memory);

/// Where in the messages the learned ones begin: those before `count` become unlearned.
void learn_from(Messages& messages, size_t count);

}  // namespace mft
