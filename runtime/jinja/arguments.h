#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// The arguments of a call of a built-in function.
class CallArguments {
 public:
  CallArguments(std::string function, std::vector<Value> positional, std::vector<std::pair<std::string, Value>> named)
      : function_(std::move(function)), positional_(std::move(positional)), named_(std::move(named)) {}

  /// Sorts the arguments by the parameters' names. Throws Error if there are too many, a name is unknown, or one of the
  /// first `required` is missing.
  void match(std::initializer_list<std::string_view> parameters, size_t required = 0);
  /// The same for up to `most` parameters that cannot be named.
  void match_positional(size_t most, size_t required = 0);
  /// After `match`: returns the argument of a parameter, or nullptr if it was left out.
  const Value* get(size_t index) const { return matched_[index]; }
  bool has(size_t index) const { return matched_[index] != nullptr; }
  const Value& at(size_t index) const { return *matched_[index]; }
  /// After `match`: returns the argument, or `otherwise` if it was left out. Throws Error for another type.
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
