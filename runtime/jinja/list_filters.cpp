#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/jinja/filter_tables.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/texts.h"
#include "runtime/unicode/letter_case.h"

namespace mft::jinja {
namespace {

/// Python evaluates a filter's items when the result is used. For values that may change before, the difference would
/// be visible, so they are rejected.
void check_lasting(const Value& value) {
  if (value.is(Type::kNamespace) || value.is(Type::kLoop) || value.is(Type::kIterator)) {
    fail("filters of ", type_name(value), " items are not supported");
  }
}

/// Gets the value of each item to look at: the item, or the value at a path of attributes such as "function.name".
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

/// Converts text to lower case for case-insensitive comparisons. Other values are not changed.
Value folded(const Value& value, Memory& memory) {
  if (!value.is(Type::kText)) return value;
  return memory.text(cased(value.text(), lower_case, memory));
}

/// Sorts stably by the `key` of the items. `equal_first`: equal values need no order, as in lists.
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
  if (value.is(Type::kIterator)) fail("last() of an iterator is not supported");
  const std::vector<Value> items = items_of(value, memory);
  return items.empty() ? memory.undefined("the last item of an empty sequence") : items.back();
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
  if (!name.is(Type::kText)) fail("map() requires a filter's name");
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
  if (by_attribute && arguments.positional().empty()) fail(arguments.function(), "() requires an attribute");
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
      if (!of_test.positional()[0].is(Type::kText)) fail(arguments.function(), "() requires a test's name");
      CallArguments rest = of_test.rest();
      holds = apply_test(of_test.positional()[0].text(), looked_at, rest, memory);
    }
    if (holds == keep) kept.push_back(one);
  }
  return memory.iterator(std::move(kept));
}

}  // namespace

const FilterTable& list_filters() {
  static const FilterTable table = {
      {"dictsort", sort_dict},
      {"first", first},
      {"items", items},
      {"join", join},
      {"last", last},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"reverse", reverse},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"unique", unique},
  };
  return table;
}

}  // namespace mft::jinja
