#include <cmath>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"

namespace mft::jinja {
namespace {

using Test = bool (*)(const Value& value, CallArguments& arguments, Memory& memory);

template <Type type>
bool is_type(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is(type);
}

bool is_defined(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return !value.is(Type::kUndefined);
}

template <bool wanted>
bool is_bool(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is(Type::kBool) && is_true(value) == wanted;
}

bool is_number(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is_number();
}

bool is_callable(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is(Type::kFunction) || value.is(Type::kLoop) || value.is(Type::kUndefined);
}

bool is_string(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is_text();
}

/// Text, lists and dicts, and undefined values, which Jinja treats as empty.
bool is_sequence(const Value& value, CallArguments& arguments, Memory&) {
  arguments.match({});
  return value.is_text() || value.is(Type::kList) || value.is(Type::kRange) || value.is(Type::kDict) ||
         value.is(Type::kUndefined);
}

bool is_iterable(const Value& value, CallArguments& arguments, Memory& memory) {
  return is_sequence(value, arguments, memory) || value.is(Type::kLoop) || value.is(Type::kView) ||
         value.is(Type::kIterator);
}

/// Python's `is`. It is rejected for equal numbers, texts and tuples, because Python may or may not share the object.
bool is_same(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"other"}, 1);
  const Value& other = arguments.at(0);
  if (value.type() != other.type() || value.is(Type::kNone) || value.is(Type::kBool)) return value.same(other);
  const bool unclear = value.is_number() || value.is_text() || value.is(Type::kFunction) ||
                       value.is(Type::kUndefined) ||
                       (value.is(Type::kList) && value.list().tuple && other.list().tuple);
  if (unclear && value.is(Type::kInt) && value.same(other) && value.integer() >= -5 && value.integer() <= 256)
    return true;
  if (unclear && (value.is(Type::kFunction) || value.is(Type::kUndefined) || equal(value, other, memory))) {
    fail("the test sameas is not supported for values of type ", type_name(value));
  }
  return value.same(other);
}

template <int wanted>
bool has_parity(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({});
  if (!value.is_number()) fail("expected a number, not a ", type_name(value));
  return binary("%", value, Value::of(int64_t{2}), memory).number() == wanted;
}

bool is_divisible(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match({"num"}, 1);
  if (!value.is_number()) fail("expected a number, not a ", type_name(value));
  return binary("%", value, arguments.at(0), memory).number() == 0;
}

template <bool upper>
bool has_case(const Value& value, CallArguments& arguments, Memory& memory) {
  return is_true(call_method(memory.text(to_text(value, memory)), upper ? "isupper" : "islower", arguments, memory));
}

template <const char* const& sign>
bool compares(const Value& value, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  return compare(sign, value, arguments.at(0), memory);
}

constexpr const char* kEqual = "==";
constexpr const char* kUnequal = "!=";
constexpr const char* kLess = "<";
constexpr const char* kLessEqual = "<=";
constexpr const char* kGreater = ">";
constexpr const char* kGreaterEqual = ">=";
constexpr const char* kIn = "in";

}  // namespace

bool apply_test(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory) {
  static const std::unordered_map<std::string_view, Test> table = {
      {"!=", compares<kUnequal>},
      {"<", compares<kLess>},
      {"<=", compares<kLessEqual>},
      {"==", compares<kEqual>},
      {">", compares<kGreater>},
      {">=", compares<kGreaterEqual>},
      {"boolean", is_type<Type::kBool>},
      {"callable", is_callable},
      {"defined", is_defined},
      {"divisibleby", is_divisible},
      {"eq", compares<kEqual>},
      {"equalto", compares<kEqual>},
      {"even", has_parity<0>},
      {"false", is_bool<false>},
      {"float", is_type<Type::kFloat>},
      {"ge", compares<kGreaterEqual>},
      {"greaterthan", compares<kGreater>},
      {"gt", compares<kGreater>},
      {"in", compares<kIn>},
      {"integer", is_type<Type::kInt>},
      {"iterable", is_iterable},
      {"le", compares<kLessEqual>},
      {"lessthan", compares<kLess>},
      {"lower", has_case<false>},
      {"lt", compares<kLess>},
      {"mapping", is_type<Type::kDict>},
      {"ne", compares<kUnequal>},
      {"none", is_type<Type::kNone>},
      {"number", is_number},
      {"odd", has_parity<1>},
      {"sameas", is_same},
      {"sequence", is_sequence},
      {"string", is_string},
      {"true", is_bool<true>},
      {"undefined", is_type<Type::kUndefined>},
      {"upper", has_case<true>},
  };
  memory.spend(kCallPrice);
  const auto found = table.find(name);
  if (found == table.end()) fail("no test named '", name, "' is supported");
  return found->second(value, arguments, memory);
}

}  // namespace mft::jinja
