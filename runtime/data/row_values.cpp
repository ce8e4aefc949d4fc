#include "runtime/data/row_values.h"

#include "runtime/base/error.h"
#include "runtime/jinja/filters.h"

namespace mft {

using jinja::Type;
using jinja::Value;

const Value* find(const Value& dict, std::string_view key) {
  const Value* found = dict.is(Type::kDict) ? dict.dict().find(key) : nullptr;
  return found == nullptr || found->is(Type::kNone) ? nullptr : found;
}

std::string text_of(const Value& value, const std::string& what) {
  if (!value.is(Type::kText)) fail(what, " is ", shown(value), "; it must be a string");
  return value.text();
}

std::string shown(const Value& value) {
  jinja::Memory memory;
  jinja::CallArguments plain("tojson", {}, {});
  const std::string text = jinja::json_text(value, plain, memory);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

}  // namespace mft
