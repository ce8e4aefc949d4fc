#include "runtime/cli/arguments.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/renamed.h"

namespace mft {

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Arguments::Arguments(const std::vector<std::string>& arguments, const std::map<std::string, Word>& words,
                     const std::vector<std::string>& options, const char* argument_name) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      if (!argument_.empty()) fail("unexpected argument ", argument);
      argument_ = argument;
      continue;
    }
    const std::string name = argument.substr(2);
    const auto word = words.find(name);
    const bool is_option = std::find(options.begin(), options.end(), underscored(name)) != options.end();
    if (word == words.end() && !is_option) {
      const std::string now = name_now(name);
      fail("unknown option ", argument, words.count(now) ? "; it is called --" + now + " now" : "");
    }
    if (word != words.end() && word->second == Word::kFlag) {
      values_[name] = {"true"};
      continue;
    }
    if (++i == arguments.size()) fail(argument, " requires a value");
    if (is_option) {
      options_[underscored(name)] = arguments[i];
    } else {
      if (word->second != Word::kRepeated) values_[name].clear();
      values_[name].push_back(arguments[i]);
    }
  }
  if (argument_.empty()) fail("the argument ", argument_name, " is missing");
}

std::vector<std::string> Arguments::all(const std::string& word) const {
  const auto found = values_.find(word);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::string Arguments::text(const std::string& word) const {
  const std::vector<std::string> values = all(word);
  return values.empty() ? "" : values.back();
}

std::string Arguments::required(const std::string& word) const {
  const std::string value = text(word);
  if (value.empty()) fail("--", word, " is missing");
  return value;
}

}  // namespace mft
