#pragma once

#include <string>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft {

/// The messages of a row in the form of templates. Those of the assistant are learned, unless they are masked: their
/// "weight" is 0 or their "train" is false.
struct Messages {
  std::vector<jinja::Value> values;
  std::vector<bool> learned, masked;

  void add(const std::string& role, const jinja::Value& content, jinja::Memory& memory);
  void append(const Messages& others);
};

/// Reads OpenAI's messages, {"role", "content"}, or ShareGPT's, {"from", "value"}, with their usual names of roles.
/// `key` is their key in the row, for errors. Throws Error.
Messages messages_of(const jinja::Value& list, const std::string& key, jinja::Memory& memory);

/// Marks the messages before `count` as not learned.
void learn_from(Messages& messages, size_t count);

}  // namespace mft
