#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// The arguments of a call of something built in.
class CallArguments {
 public:
  CallArguments(std::string function, std::vector<Value> positional, std::vector<std::pair<std::string, Value>> named)
      : function_(std::move(function)), positional_(std::move(positional)), named_(std::move(named)) {}

  /// Puts the arguments in the order of the parameters' names. Throws Error where there is one too many, or of no such
  /// name, or one of the first `required` is missing.
  void match(std::initializer_list<std::string_view> parameters, size_t required = 0);
  /// The same of parameters that cannot be named: up to `most` of them.
  void match_positional(size_t most, size_t required = 0);
  /// After `match`: the argument of a parameter, nullptr where it was left out.
  const Value* get(size_t index) const { return matched_[index]; }
  bool has(size_t index) const { return matched_[index] != nullptr; }
  const Value& at(size_t index) const { return *matched_[index]; }
  /// After `match`; `otherwise` where it was left out. Throws Error where it is of another type.
  const std::string& text(size_t index) const;
  int64_t integer(size_t index, int64_t otherwise) const;
  bool flag(size_t index) const { return has(index) && is_true(at(index)); }

  const std::string& function() const { return function_; }
  const std::vector<Value>& positional() const { return positional_; }
  const std::vector<std::pair<std::string, Value>>& named() const { return named_; }
  /// Without the first positional argument.
  CallArguments rest() const;

 private:
  std::string function_;  // for errors
  std::vector<Value> positional_;
  std::vector<std::pair<std::string, Value>> named_;
  std::vector<const Value*> matched_;
};

}  // namespace mft::jinja
