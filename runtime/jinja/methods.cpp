#include "runtime/jinja/methods.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/jinja/text_methods.h"

namespace mft::jinja {
namespace {

Value list_count(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  return Value::of(
      static_cast<int64_t>(std::count_if(self.list().items.begin(), self.list().items.end(),
                                         [&](const Value& x) { return equal(x, arguments.at(0), memory); })));
}

Value list_index(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const auto& items = self.list().items;
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const Value& x) { return equal(x, arguments.at(0), memory); });
  if (found == items.end()) fail("index(): the value is not in the list");
  return Value::of(static_cast<int64_t>(found - items.begin()));
}

const MethodTable& list_methods() {
  static const MethodTable table = {{"count", list_count}, {"index", list_index}};
  return table;
}

Value dict_get(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(2, 1);
  if (const Value* found = self.dict().find(arguments.at(0), memory)) return *found;
  return arguments.has(1) ? arguments.at(1) : Value::none();
}

Value dict_keys(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  return memory.sequence(Type::kView, items_of(self, memory), "dict_keys");
}

Value dict_values(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  std::vector<Value> values;
  for (const auto& [_, value] : self.dict().items()) values.push_back(value);
  return memory.sequence(Type::kView, std::move(values), "dict_values");
}

Value dict_items(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().items()) pairs.push_back(memory.list({key, value}, true));
  return memory.sequence(Type::kView, std::move(pairs), "dict_items");
}

const MethodTable& dict_methods() {
  static const MethodTable table = {
      {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}};
  return table;
}

Value loop_cycle(const Value& self, CallArguments& arguments, Memory&) {
  const auto& values = arguments.positional();
  arguments.match_positional(values.size());
  if (values.empty()) fail("no items for cycling given");
  return values[self.loop().index % values.size()];
}

Value loop_changed(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(arguments.positional().size());
  const Value given = memory.list(arguments.positional(), true);
  LoopState& loop = self.loop();
  const bool changed = loop.changed.is(Type::kUndefined) || !equal(loop.changed, given, memory);
  loop.changed = given;
  return Value::of(changed);
}

const MethodTable& loop_methods() {
  static const MethodTable table = {{"changed", loop_changed}, {"cycle", loop_cycle}};
  return table;
}

const MethodTable* table_of(const Value& value) {
  switch (value.type()) {
    case Type::kText:
      return &text_methods();
    case Type::kList:
      return &list_methods();
    case Type::kDict:
      return &dict_methods();
    case Type::kLoop:
      return &loop_methods();
    default:
      return nullptr;
  }
}

}  // namespace

bool is_method(const Value& value, const std::string& name) {
  // Methods of Python that templates cannot call here. Their names must not be treated as items.
  static const std::unordered_set<std::string_view> text_others = {
      "casefold",    "center",  "encode", "expandtabs", "format_map", "isascii",  "isdecimal", "isidentifier",
      "isprintable", "istitle", "ljust",  "maketrans",  "rjust",      "swapcase", "translate", "zfill"};
  const MethodTable* table = table_of(value);
  if (table == nullptr) return false;
  if (table->count(name) > 0) return true;
  if (value.is(Type::kText)) return text_others.count(name) > 0;
  if (value.is(Type::kList)) return !value.list().tuple && name == "copy";
  return value.is(Type::kDict) && (name == "copy" || name == "fromkeys");
}

bool is_changing_method(const Value& value, const std::string& name) {
  static const std::unordered_set<std::string_view> of_lists = {"append", "clear",  "extend",  "insert",
                                                                "pop",    "remove", "reverse", "sort"};
  static const std::unordered_set<std::string_view> of_dicts = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.is(Type::kList)) return !value.list().tuple && of_lists.count(name) > 0;
  return value.is(Type::kDict) && of_dicts.count(name) > 0;
}

Value call_method(const Value& self, const std::string& name, CallArguments& arguments, Memory& memory) {
  const MethodTable* table = table_of(self);
  const auto found = table == nullptr ? MethodTable::const_iterator() : table->find(name);
  if (table == nullptr || found == table->end()) fail(name, "() of a ", type_name(self), " is not supported");
  return found->second(self, arguments, memory);
}

Value loop_attribute(const Value& value, const std::string& name, Memory& memory) {
  LoopState& loop = value.loop();
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::of(index + 1);
  if (name == "index0") return Value::of(index);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(!loop.has_next());
  if (name == "length") return Value::of(length(value));
  if (name == "revindex") return Value::of(length(value) - index);
  if (name == "revindex0") return Value::of(length(value) - index - 1);
  if (name == "depth" || name == "depth0")
    return Value::of(int64_t{name == "depth"});  // constant, because recursive loops are not supported
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : memory.undefined("there is no previous item");
  if (name == "nextitem") {
    return loop.has_next() ? loop.items[loop.index + 1] : memory.undefined("there is no next item");
  }
  if (is_method(value, name)) return memory.function({name, value});
  if (name.substr(0, 1) == "_") fail("the attribute ", name, " of a loop is not supported");
  return memory.undefined("'loop' has no attribute '" + name + "'");
}

}  // namespace mft::jinja
