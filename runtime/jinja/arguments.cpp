#include "runtime/jinja/arguments.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace mft::jinja {

void CallArguments::match(std::initializer_list<std::string_view> parameters, size_t required) {
  if (positional_.size() > parameters.size()) {
    fail(function_, "() takes ", parameters.size(), " arguments, but got ", positional_.size());
  }
  matched_.assign(parameters.size(), nullptr);
  for (size_t i = 0; i < positional_.size(); ++i) matched_[i] = &positional_[i];
  for (const auto& [name, value] : named_) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) fail(function_, "() has no argument '", name, "'");
    const Value*& place = matched_[static_cast<size_t>(found - parameters.begin())];
    if (place != nullptr) fail(function_, "() got '", name, "' twice");
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (matched_[i] == nullptr) fail(function_, "() requires '", parameters.begin()[i], "'");
  }
}

void CallArguments::match_positional(size_t most, size_t required) {
  if (!named_.empty()) fail(function_, "() takes no keyword arguments");
  if (positional_.size() > most || positional_.size() < required) {
    fail(function_, "() takes ", required, " to ", most, " arguments, but got ", positional_.size());
  }
  matched_.assign(most, nullptr);
  for (size_t i = 0; i < positional_.size(); ++i) matched_[i] = &positional_[i];
}

const std::string& CallArguments::text(size_t index) const {
  if (!at(index).is(Type::kText)) fail(function_, "() requires a str, not a ", type_name(at(index)));
  return at(index).text();
}

int64_t CallArguments::integer(size_t index, int64_t otherwise) const {
  if (!has(index)) return otherwise;
  if (!at(index).is_integer()) fail(function_, "() requires an int, not a ", type_name(at(index)));
  return at(index).integer();
}

CallArguments CallArguments::rest() const {
  return {function_, {positional_.begin() + (positional_.empty() ? 0 : 1), positional_.end()}, named_};
}

}  // namespace mft::jinja
