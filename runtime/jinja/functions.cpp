#include "runtime/jinja/functions.h"

#include <utility>

#include "runtime/base/error.h"

namespace mft::jinja {
namespace {

constexpr size_t kMostStyle = 100;       // maximum characters of a date's format
constexpr int64_t kMostRange = 100'000;  // maximum items, as in Jinja's sandbox

void fill(Dict& made, const Value& from, Memory& memory) {
  if (from.is(Type::kUndefined)) fail(from.undefined_name(), " is undefined");
  if (from.is(Type::kDict)) {
    for (const auto& [key, value] : from.dict().items()) made.set(key, value, memory);
    return;
  }
  for (const Value& one : items_of(from, memory)) {
    const std::vector<Value> pair = items_of(one, memory);
    if (pair.size() != 2) fail("dict() requires pairs of a key and a value");
    made.set(pair[0], pair[1], memory);
  }
}

Value range(CallArguments& arguments, Memory& memory) {
  arguments.match_positional(3, 1);
  const bool has_start = arguments.has(1);
  const int64_t start = has_start ? arguments.integer(0, 0) : 0;
  const int64_t stop = arguments.integer(has_start ? 1 : 0, 0), step = arguments.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  int64_t value = start;
  while (step > 0 ? value < stop : value > stop) {
    if (items.size() == static_cast<size_t>(kMostRange)) fail("range() supports at most ", kMostRange, " numbers");
    memory.spend(kItemPrice);
    items.push_back(Value::of(value));
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  return memory.sequence(Type::kRange, std::move(items));
}

/// Python's strftime, for a date without a time zone.
std::string date(const std::string& style, const std::tm& now) {
  constexpr std::string_view kFields = "aAbBcdDeFhHIjmMnpSTtuUVwWxXyY%";
  if (style.size() > kMostStyle) fail("date formats of more than ", kMostStyle, " characters are not supported");
  std::string known;
  for (size_t i = 0; i < style.size(); ++i) {
    if (style[i] == '\0') fail("date formats with a zero character are not supported");
    if (style[i] != '%') {
      known += style[i];
      continue;
    }
    const bool short_form = i + 1 < style.size() && style[i + 1] == '-';
    i += short_form ? 2 : 1;
    const char field = i < style.size() ? style[i] : '\0';
    if (field == 'z' || field == 'Z') continue;  // the date has no time zone
    if (field == '\0' || kFields.find(field) == kFields.npos) fail("the date format ", style, " is not supported");
    known += short_form ? "%-" : "%";
    known += field;
  }
  char text[1 << 13];
  return std::string(text, std::strftime(text, sizeof text, known.c_str(), &now));
}

}  // namespace

Value call_function(const std::string& name, CallArguments& arguments, const std::tm& now, Memory& memory) {
  if (name == "range") return range(arguments, memory);
  if (name == "raise_exception") {
    arguments.match({"message"}, 1);
    fail(to_text(arguments.at(0), memory));
  }
  if (name == "strftime_now") {
    arguments.match({"format"}, 1);
    return memory.text(date(arguments.text(0), now));
  }
  if (name != "dict" && name != "namespace") fail(name, "() is not supported");
  Dict made;
  if (!arguments.positional().empty()) {
    const Value& from = arguments.positional()[0];
    if (arguments.positional().size() > 1) fail(name, "() takes one positional argument");
    fill(made, from, memory);
  }
  for (const auto& [key, value] : arguments.named()) made.set(memory.text(key), value, memory);
  if (name == "namespace") {
    for (const auto& [key, value] : made.items()) {
      if (!key.is(Type::kText)) fail("the names of a namespace must be str, not ", type_name(key));
      check_name(key.text());
    }
    return memory.name_space(std::move(made));
  }
  Dict* dict = memory.dict();
  *dict = std::move(made);
  return Value::of(dict);
}

void check_name(std::string_view name) {
  if (name.substr(0, 1) == "_") fail("a namespace cannot have the attribute ", name);
}

}  // namespace mft::jinja
