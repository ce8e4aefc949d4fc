#include "runtime/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "runtime/core/error.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/texts.h"
#include "runtime/text/letter_case.h"
#include "runtime/text/unicode.h"

namespace mft::jinja {
namespace {

using Filter = Value (*)(const Value& value, CallArguments& arguments, Memory& memory);

/// Python walks over items when what a filter gives is used. Of values that may be others by then, that could be seen.
void check_lasting(const Value& value) {
  if (value.is(Type::kNamespace) || value.is(Type::kLoop) || value.is(Type::kIterator)) {
    fail("a filter of items that are ", type_name(value), "s is not supported");
  }
}

/// What to look at of each item: the item, or what a path of attributes such as "function.name" leads to.
class Getter {
 public:
  Getter(const Value* path, const Value* otherwise, Memory& memory) : otherwise_(otherwise), memory_(memory) {
    if (path == nullptr || path->is(Type::kNone)) return;
    if (!path->is(Type::kText)) {
      keys_.push_back(*path);
      return;
    }
    const std::string& text = path->text();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      keys_.push_back(key(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }

  Value operator()(Value value) const {
    for (const Value& key : keys_) {
      memory_.spend(kCallPrice);
      check_lasting(value);
      value = item(value, key, memory_);
      if (value.is(Type::kUndefined) && otherwise_ != nullptr && !otherwise_->is(Type::kNone)) value = *otherwise_;
    }
    return value;
  }

 private:
  Value key(const std::string& word) const {
    int64_t index = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), index);
    const bool number =
        !word.empty() && word[0] != '-' && read.ec == std::errc() && read.ptr == word.data() + word.size();
    return number ? Value::of(index) : memory_.text(word);
  }

  std::vector<Value> keys_;
  const Value* otherwise_;
  Memory& memory_;
};

/// Lower case for comparisons that do not mind it; any other value as it is.
Value folded(const Value& value, Memory& memory) {
  if (!value.is(Type::kText)) return value;
  return memory.text(cased(value.text(), lower_case, memory));
}

/// A stable sort, by what `key` makes of the items. `equal_first`: equal values need no order, as in lists.
template <typename Key>
std::vector<Value> sorted(const std::vector<Value>& items, bool reverse, bool equal_first, Key key, Memory& memory) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : items) keyed.emplace_back(key(one), one);
  memory.spend(kItemPrice * static_cast<int64_t>(items.size()));
  const auto is_less = [&](const Value& a, const Value& b) {
    memory.spend(kCallPrice);
    return !(equal_first && equal(a, b, memory)) && less(a, b, memory);
  };
  const auto by_key = [&](const auto& a, const auto& b) {
    return reverse ? is_less(b.first, a.first) : is_less(a.first, b.first);
  };
  std::stable_sort(keyed.begin(), keyed.end(), by_key);
  std::vector<Value> values;
  for (const auto& [_, value] : keyed) values.push_back(value);
  return values;
}

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
  // Jinja has its own words, of which each first character is in upper case.
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
  if (!value.is(Type::kText)) fail("indent() wants a str, not a ", type_name(value));
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

/// What int() and float() read of a text: without blanks around it, a plus, and underscores between digits.
struct Digits {
  std::string text;
  bool valid;
};

Digits digits_of(const std::string& given) {
  if (std::any_of(given.begin(), given.end(), [](char c) { return (c & 0x80) != 0 || (c >= 0x1c && c <= 0x1f); })) {
    fail("a number in text that is not plain ASCII is not supported");
  }
  constexpr const char* kBlanks = " \t\n\v\f\r";
  const size_t begin = given.find_first_not_of(kBlanks);
  if (begin == given.npos) return {"", false};
  std::string_view text = std::string_view(given).substr(begin, given.find_last_not_of(kBlanks) + 1 - begin);
  if (text[0] == '+') {
    text.remove_prefix(1);
    if (text.substr(0, 1) == "-") return {"", false};
  }
  Digits digits{"", true};
  const auto is_letter_or_digit = [&](size_t i) {
    return i < text.size() &&
           ((text[i] >= '0' && text[i] <= '9') || ((text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z'));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.text += text[i];
    } else if (i == 0 || !is_letter_or_digit(i - 1) || !is_letter_or_digit(i + 1)) {
      digits.valid = false;
    }
  }
  return digits;
}

/// float() of a text; false where it is none. Throws Error for what is none of our numbers, or not of these limits.
bool read_float(const std::string& given, double& number) {
  const Digits digits = digits_of(given);
  const std::string& text = digits.text;
  std::string word = text.substr(text.substr(0, 1) == "-" ? 1 : 0);
  for (char& c : word) c = static_cast<char>(c | 0x20);
  if (word == "inf" || word == "infinity" || word == "nan") fail("the number ", given, " is not supported");
  const auto is_other = [](char c) { return c >= 'a' && c <= 'z' && c != 'e'; };
  if (!digits.valid || text.empty() || std::any_of(word.begin(), word.end(), is_other)) return false;
  if (given.find('_') != given.npos) fail("underscores in a float are not supported");
  return read_real(text, number);
}

Value to_int(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({"default", "base"});
  const Value otherwise = arguments.has(0) ? arguments.at(0) : Value::of(int64_t{0});
  const int64_t base = arguments.integer(1, 10);
  if (base < 2 || base > 36) fail("int() base must be 2 to 36");
  if (value.is(Type::kUndefined)) fail(value.undefined_name(), " is undefined");
  if (value.is_integer()) return Value::of(value.integer());
  double number = 0;
  if (value.is(Type::kFloat)) {
    number = value.number();
  } else if (value.is(Type::kText)) {
    const Digits given = digits_of(value.text());
    std::string_view text = given.text;
    const bool negative = text.substr(0, 1) == "-";
    if (negative) text.remove_prefix(1);
    const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
    if (prefix != '\0' && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == prefix) text.remove_prefix(2);
    const char* end = text.data() + text.size();
    int64_t whole = 0;
    const auto read = std::from_chars(text.data(), end, whole, static_cast<int>(base));
    const bool is_integer = given.valid && !text.empty() && text[0] != '-' && read.ptr == end;
    if (is_integer && read.ec != std::errc()) fail("an integer of more than 63 bits");
    if (is_integer) return Value::of(negative ? -whole : whole);
    if (!read_float(value.text(), number)) return otherwise;
  } else {
    return otherwise;
  }
  if (std::isinf(number) && value.is(Type::kText)) return otherwise;
  if (!(std::abs(number) < 9.2e18)) fail("an integer of more than 63 bits");
  return Value::of(static_cast<int64_t>(number));
}

Value to_float(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({"default"});
  const Value otherwise = arguments.has(0) ? arguments.at(0) : Value::of(0.0);
  if (value.is(Type::kUndefined)) fail(value.undefined_name(), " is undefined");
  if (value.is_number()) return Value::of(value.number());
  if (!value.is(Type::kText)) return otherwise;
  double number = 0;
  return read_float(value.text(), number) ? Value::of(number) : otherwise;
}

Value absolute(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  if (value.is(Type::kFloat)) return Value::of(std::abs(value.number()));
  const Value negative = signed_value("-", value);
  return negative.number() > value.number() ? negative : signed_value("+", value);
}

Value count(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (value.is(Type::kText)) memory.spend(value.text().size());
  return Value::of(length(value));
}

Value first(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (value.is(Type::kIterator) && value.iterator().next < value.iterator().items.size() && !value.iterator().busy) {
    return value.iterator().items[value.iterator().next++];
  }
  const std::vector<Value> items = items_of(value, memory);
  return items.empty() ? memory.undefined("the first item of an empty sequence") : items.front();
}

Value last(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (value.is(Type::kIterator)) fail("last() of what can be walked over once");
  const std::vector<Value> items = items_of(value, memory);
  return items.empty() ? memory.undefined("the last item of an empty sequence") : items.back();
}

Value fallback(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"default_value", "boolean"});
  if (!value.is(Type::kUndefined) && !(arguments.flag(1) && !is_true(value))) return value;
  return arguments.has(0) ? arguments.at(0) : memory.text("");
}

Value attribute_of(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"name"}, 1);
  const std::string& name = arguments.text(0);
  // All attributes but items of dicts, which are none here.
  const bool item = value.is(Type::kDict) && !is_method(value, name) && name.substr(0, 2) != "__";
  if (!value.is(Type::kUndefined) && !item) return attribute(value, name, memory);
  if (value.is(Type::kUndefined)) fail(value.undefined_name(), " is undefined");
  return memory.undefined("'" + std::string(type_name(value)) + "' object has no attribute '" + name + "'");
}

Value list(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return memory.list(items_of(value, memory));
}

Value reverse(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  std::vector<Value> items = items_of(value, memory);
  std::reverse(items.begin(), items.end());
  if (value.is(Type::kText)) return memory.text(joined("", items, memory));
  return value.is(Type::kIterator) ? memory.list(std::move(items)) : memory.iterator(std::move(items));
}

Value join(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"d", "attribute"});
  const Getter get(arguments.get(1), nullptr, memory);
  std::vector<Value> items = items_of(value, memory);
  for (Value& one : items) one = get(one);
  return memory.text(joined(arguments.has(0) ? to_text(arguments.at(0), memory) : "", items, memory));
}

Value items(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (value.is(Type::kUndefined)) return memory.iterator({});
  if (!value.is(Type::kDict)) fail("Can only get item pairs from a mapping.");
  return memory.iterator(call_method(value, "items", arguments, memory).list().items);
}

Value sort(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"reverse", "case_sensitive", "attribute"});
  const Getter get(arguments.get(2), nullptr, memory);
  const bool cases = arguments.flag(1);
  const auto key = [&](const Value& one) { return cases ? get(one) : folded(get(one), memory); };
  return memory.list(sorted(items_of(value, memory), arguments.integer(0, 0) != 0, true, key, memory));
}

Value sort_dict(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"case_sensitive", "by", "reverse"});
  const std::string by = arguments.has(1) ? arguments.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!value.is(Type::kDict)) fail("'", type_name(value), "' object has no attribute 'items'");
  CallArguments none("items", {}, {});
  const Value pairs = call_method(value, "items", none, memory);
  const bool cases = arguments.flag(0);
  const auto key = [&](const Value& pair) {
    const Value part = pair.list().items[by == "key" ? 0 : 1];
    return cases ? part : folded(part, memory);
  };
  return memory.list(sorted(pairs.list().items, arguments.integer(2, 0) != 0, false, key, memory));
}

Value unique(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"case_sensitive", "attribute"});
  const Getter get(arguments.get(1), nullptr, memory);
  Dict seen;
  std::vector<Value> kept;
  for (const Value& one : items_of(value, memory)) {
    const Value key = arguments.flag(0) ? get(one) : folded(get(one), memory);
    if (seen.find(key, memory) != nullptr) continue;
    seen.set(key, key, memory);
    kept.push_back(one);
  }
  return memory.iterator(std::move(kept));
}

template <bool largest>
Value extreme(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"case_sensitive", "attribute"});
  const Getter get(arguments.get(1), nullptr, memory);
  const auto key = [&](const Value& one) { return arguments.flag(0) ? get(one) : folded(get(one), memory); };
  const std::vector<Value> items = items_of(value, memory);
  if (items.empty()) return memory.undefined("No aggregated item, sequence was empty.");
  Value best = items[0], best_key = key(best);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value other = key(items[i]);
    if (largest ? less(best_key, other, memory) : less(other, best_key, memory)) {
      best = items[i];
      best_key = other;
    }
  }
  return best;
}

Value map(const Value& value, CallArguments& arguments, Memory& memory) {
  if (!is_true(value)) return memory.iterator({});
  std::vector<Value> made = items_of(value, memory);
  if (arguments.positional().empty()) {
    arguments.match({"attribute", "default"});
    if (!arguments.has(0)) fail("map requires a filter argument");
    const Getter get(arguments.get(0), arguments.get(1), memory);
    for (Value& one : made) one = get(one);
    return memory.iterator(std::move(made));
  }
  const Value& name = arguments.positional()[0];
  if (!name.is(Type::kText)) fail("map() wants a filter's name");
  for (Value& one : made) {
    CallArguments rest = arguments.rest();
    check_lasting(one);
    one = apply_filter(name.text(), one, rest, memory);
  }
  return memory.iterator(std::move(made));
}

/// select, reject, selectattr and rejectattr.
template <bool keep, bool by_attribute>
Value choose(const Value& value, CallArguments& arguments, Memory& memory) {
  if (by_attribute && arguments.positional().empty()) fail(arguments.function(), "() needs an attribute");
  const Getter get(by_attribute ? &arguments.positional()[0] : nullptr, nullptr, memory);
  const CallArguments of_test = by_attribute ? arguments.rest() : arguments;
  if (!is_true(value)) return memory.iterator({});
  std::vector<Value> kept;
  for (const Value& one : items_of(value, memory)) {
    check_lasting(one);
    const Value looked_at = get(one);
    bool holds = false;
    if (of_test.positional().empty()) {
      holds = is_true(looked_at);
    } else {
      if (!of_test.positional()[0].is(Type::kText)) fail(arguments.function(), "() wants a test's name");
      CallArguments rest = of_test.rest();
      holds = apply_test(of_test.positional()[0].text(), looked_at, rest, memory);
    }
    if (holds == keep) kept.push_back(one);
  }
  return memory.iterator(std::move(kept));
}

Value to_json(const Value& value, CallArguments& arguments, Memory& memory) {
  return memory.text(json_text(value, arguments, memory));
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory) {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"abs", absolute},
      {"attr", attribute_of},
      {"capitalize", capitalize},
      {"count", count},
      {"d", fallback},
      {"default", fallback},
      {"dictsort", sort_dict},
      {"first", first},
      {"float", to_float},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", count},
      {"list", list},
      {"lower", lower},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"replace", replace},
      {"reverse", reverse},
      {"safe", safe},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"string", string},
      {"title", title},
      {"tojson", to_json},
      {"trim", trim},
      {"unique", unique},
      {"upper", upper},
  };
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
