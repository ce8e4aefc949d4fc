#include "runtime/jinja/filters.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/jinja/filter_tables.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/texts.h"
#include "runtime/unicode/letter_case.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

Value capitalize(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return memory.text(cased(to_text(value, memory), capitalized, memory));
}

Value lower(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return memory.text(cased(to_text(value, memory), lower_case, memory));
}

Value upper(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return memory.text(cased(to_text(value, memory), upper_case, memory));
}

Value title(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  // Jinja has its own definition of words, and capitalizes the first character of each.
  const auto is_between = [](char32_t c) {
    return is_space(c) || (c >= 0x1c && c <= 0x1f) ||
           (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  const std::string text = to_text(value, memory);
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t past = begin, end = begin;
    const char32_t first = character_at(text, begin, past);
    const bool between = is_between(first);
    end = skip(text, past, [&](char32_t c) { return is_between(c) == between; });
    memory.spend(kStepPrice);
    out += cased(text.substr(begin, past - begin), upper_case, memory);
    out += cased(text.substr(past, end - past), lower_case, memory);
    begin = end;
  }
  return memory.text(std::move(out));
}

Value string(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return value.is_text() ? value : memory.text(to_text(value, memory));
}

Value safe(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return value.is(Type::kMarkup) ? value : memory.markup(to_text(value, memory));
}

Value trim(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"chars"});
  const std::string* characters = nullptr;
  if (arguments.has(0) && !arguments.at(0).is(Type::kNone)) characters = &arguments.text(0);
  return memory.text(stripped(to_text(value, memory), characters, Ends::kBoth, memory));
}

Value replace(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"old", "new", "count"}, 2);
  const int64_t most = arguments.has(2) && arguments.at(2).is(Type::kNone) ? -1 : arguments.integer(2, -1);
  return memory.text(replaced(to_text(value, memory), to_text(arguments.at(0), memory),
                              to_text(arguments.at(1), memory), most, memory));
}

Value indent(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"width", "first", "blank"});
  if (!value.is(Type::kText)) fail("indent() requires a str, not a ", type_name(value));
  const std::string text = to_text(value, memory) + "\n";  // this quirk is necessary for splitlines method
  std::string margin;
  if (arguments.has(0) && arguments.at(0).is(Type::kText)) {
    margin = arguments.text(0);
  } else {
    const int64_t width = std::max<int64_t>(arguments.integer(0, 4), 0);
    memory.spend(width);
    margin.assign(static_cast<size_t>(width), ' ');
  }
  CallArguments none("splitlines", {}, {});
  const Value lines = call_method(memory.text(text), "splitlines", none, memory);
  const bool first = arguments.flag(1), blank = arguments.flag(2);
  std::string out;
  for (size_t i = 0; i < lines.list().items.size(); ++i) {
    const std::string& line = lines.list().items[i].text();
    memory.spend(kStepPrice + static_cast<int64_t>(line.size() + margin.size()));
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !line.empty()) out += margin;
    out += line;
  }
  return memory.text(std::move(out));
}

Value count(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (value.is(Type::kText)) memory.spend(value.text().size());
  return Value::of(length(value));
}

Value fallback(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"default_value", "boolean"});
  if (!value.is(Type::kUndefined) && !(arguments.flag(1) && !is_true(value))) return value;
  return arguments.has(0) ? arguments.at(0) : memory.text("");
}

Value attribute_of(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"name"}, 1);
  const std::string& name = arguments.text(0);
  // All attributes, but not items of dicts.
  const bool item = value.is(Type::kDict) && !is_method(value, name) && name.substr(0, 2) != "__";
  if (!value.is(Type::kUndefined) && !item) return attribute(value, name, memory);
  if (value.is(Type::kUndefined)) fail(value.undefined_name(), " is undefined");
  return memory.undefined("'" + std::string(type_name(value)) + "' object has no attribute '" + name + "'");
}

Value to_json(const Value& value, CallArguments& arguments, Memory& memory) {
  return memory.text(json_text(value, arguments, memory));
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory) {
  static const FilterTable table = [] {
    FilterTable filters = {
        {"attr", attribute_of}, {"capitalize", capitalize},
        {"count", count},       {"d", fallback},
        {"default", fallback},  {"indent", indent},
        {"length", count},      {"lower", lower},
        {"replace", replace},   {"safe", safe},
        {"string", string},     {"title", title},
        {"tojson", to_json},    {"trim", trim},
        {"upper", upper},
    };
    for (const FilterTable* more : {&list_filters(), &number_filters()}) filters.insert(more->begin(), more->end());
    return filters;
  }();
  memory.spend(kCallPrice);
  const auto found = table.find(name);
  if (found == table.end()) fail("no filter named '", name, "' is supported");
  if (value.is(Type::kMarkup)) {
    static const std::unordered_set<std::string_view> of_markup = {"count", "d",      "default", "length",
                                                                   "safe",  "string", "tojson"};
    if (of_markup.count(name) == 0) fail("the filter ", name, " of a Markup is not supported");
  }
  return found->second(value, arguments, memory);
}

}  // namespace mft::jinja
