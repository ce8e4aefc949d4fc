#include "runtime/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/texts.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

Value missing(const Value& value, const std::string& name, Memory& memory) {
  return memory.undefined("attribute '" + name + "' of a " + type_name(value));
}

[[noreturn]] void fail_undefined(const Value& value) { fail(value.undefined_name(), " is undefined"); }

[[noreturn]] void fail_operands(std::string_view sign, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is(Type::kUndefined)) fail_undefined(*side);
  }
  fail("unsupported operand types for ", sign, ": '", type_name(left), "' and '", type_name(right), "'");
}

/// Returns the beginning of character `index` of a text.
size_t character_place(const std::string& text, int64_t index) {
  size_t at = 0;
  while (index-- > 0) character_at(text, at, at);
  return at;
}

/// Applies a checked operation to two integers. Throws Error on overflow.
template <typename Operation>
int64_t whole(Operation operation, int64_t a, int64_t b) {
  int64_t value = 0;
  if (operation(a, b, &value)) fail("integers of more than 63 bits are not supported");
  return value;
}

bool add(int64_t a, int64_t b, int64_t* value) { return __builtin_add_overflow(a, b, value); }
bool subtract(int64_t a, int64_t b, int64_t* value) { return __builtin_sub_overflow(a, b, value); }
bool multiply(int64_t a, int64_t b, int64_t* value) { return __builtin_mul_overflow(a, b, value); }

int64_t power(int64_t base, int64_t exponent) {
  if (base >= -1 && base <= 1) return base == -1 && exponent % 2 == 0 ? 1 : exponent == 0 ? 1 : base;
  int64_t value = 1;
  for (; exponent > 0; --exponent) value = whole(multiply, value, base);  // at most 63 times
  return value;
}

/// Rejects NaN, because Python compares it in special ways in lists and sorts.
Value checked(double value) {
  if (std::isnan(value)) fail("results that are not a number are not supported");
  return Value::of(value);
}

double divided(int64_t a, int64_t b) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (std::max(a, b) > kExact || std::min(a, b) < -kExact)
    fail("division of integers of more than 53 bits is not supported");
  return static_cast<double>(a) / static_cast<double>(b);
}

/// Python's % and // of floats.
double remainder_of(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_divided(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double below = std::floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

Value of_integers(std::string_view sign, int64_t a, int64_t b) {
  if (sign == "+") return Value::of(whole(add, a, b));
  if (sign == "-") return Value::of(whole(subtract, a, b));
  if (sign == "*") return Value::of(whole(multiply, a, b));
  if (sign == "**" && b >= 0) return Value::of(power(a, b));
  if (sign == "**" && a == 0) fail("0 cannot be raised to a negative power");
  if (sign == "**") return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  if (b == 0) fail("division by zero");
  if (sign == "/") return Value::of(divided(a, b));
  if (b == -1) return Value::of(sign == "%" ? int64_t{0} : whole(subtract, 0, a));
  const int64_t rest = a % b, floor_rest = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return Value::of(sign == "%" ? floor_rest : (a - floor_rest) / b);
}

Value of_floats(std::string_view sign, double a, double b) {
  if (sign == "+") return checked(a + b);
  if (sign == "-") return checked(a - b);
  if (sign == "*") return checked(a * b);
  if (sign == "**") {
    const double value = std::pow(a, b);
    if (std::isinf(value) && std::isfinite(a) && std::isfinite(b)) fail("the result of ** is too large");
    return checked(value);
  }
  if (b == 0) fail("division by zero");
  if (sign == "/") return checked(a / b);
  return checked(sign == "%" ? remainder_of(a, b) : floor_divided(a, b));
}

Value repeated(const Value& value, int64_t times, Memory& memory) {
  times = std::max<int64_t>(times, 0);
  const int64_t size = value.is(Type::kText) ? static_cast<int64_t>(value.text().size()) : length(value) * kItemPrice;
  memory.spend(whole(multiply, size, times));  // charged before it is created
  if (value.is(Type::kText)) {
    std::string text;
    text.reserve(value.text().size() * static_cast<size_t>(times));
    for (int64_t i = 0; size > 0 && i < times; ++i) text += value.text();
    return memory.text(std::move(text));
  }
  std::vector<Value> items;
  for (int64_t i = 0; size > 0 && i < times; ++i) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return memory.list(std::move(items), value.list().tuple);
}

/// Converts a text that is combined with Markup to Markup.
std::string escaped(const Value& value, Memory& memory) {
  if (value.is(Type::kMarkup)) return value.text();
  std::string out;
  for (const char c : value.text()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  memory.spend(out.size());
  return out;
}

/// Whether the type in Python has an attribute of that name that is not supported here.
bool is_unsupported(const Value& value, std::string_view name) {
  static const std::unordered_set<std::string_view> of_numbers = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
      "is_integer",       "numerator", "real",       "to_bytes"};
  static const std::unordered_set<std::string_view> of_functions = {
      "name", "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller", "fromkeys"};
  static const std::unordered_set<std::string_view> of_sequences = {"close", "count", "index", "isdisjoint", "mapping",
                                                                    "send",  "start", "step",  "stop",       "throw"};
  switch (value.type()) {
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return of_numbers.count(name) > 0;
    case Type::kFunction:
      return of_functions.count(name) > 0;
    case Type::kRange:
    case Type::kView:
    case Type::kIterator:
      return of_sequences.count(name) > 0 || name.substr(0, 3) == "gi_";
    default:
      return value.is(Type::kMarkup);
  }
}

[[noreturn]] void fail_attribute(const Value& value, const std::string& name) {
  fail("the attribute ", name, " of a ", type_name(value), " is not supported");
}

bool is_sequence(const Value& value) { return value.is(Type::kText) || value.is(Type::kList); }

bool contains(const Value& container, const Value& value, Memory& memory) {
  switch (container.type()) {
    case Type::kUndefined:
      return false;
    case Type::kText:
      if (!value.is(Type::kText)) fail("'in <string>' requires a str as left operand, not ", type_name(value));
      return found_in(container.text(), value.text(), 0, memory) != std::string::npos;
    case Type::kList:
    case Type::kRange:
    case Type::kView:
      return std::any_of(container.list().items.begin(), container.list().items.end(),
                         [&](const Value& one) { return equal(one, value, memory); });
    case Type::kDict:
      return container.dict().find(value, memory) != nullptr;
    case Type::kIterator: {
      Iterator& iterator = container.iterator();
      if (iterator.busy) fail("a generator cannot be used while a loop iterates over it");
      while (iterator.next < iterator.items.size()) {
        if (equal(iterator.items[iterator.next++], value, memory)) return true;
      }
      return false;
    }
    case Type::kMarkup:
      fail("'in' a ", type_name(container), " is not supported");
    default:
      fail("argument of type '", type_name(container), "' is not iterable");
  }
}

}  // namespace

Value attribute(const Value& value, const std::string& name, Memory& memory) {
  memory.spend(kCallPrice + static_cast<int64_t>(name.size()));
  const std::string_view word = name;
  if (word.size() > 3 && word.substr(0, 2) == "__" && word.substr(word.size() - 2) == "__") {
    fail("attributes such as ", name, " are not supported");  // Jinja forbids existing ones
  }
  switch (value.type()) {
    case Type::kUndefined:
      fail_undefined(value);
    case Type::kNamespace: {
      const Value* found = value.dict().find(name);
      return found == nullptr ? missing(value, name, memory) : *found;
    }
    case Type::kLoop:
      return loop_attribute(value, name, memory);
    default:
      break;
  }
  if (is_unsupported(value, name)) fail_attribute(value, name);
  if (is_changing_method(value, name)) {
    return memory.undefined(name + "() of a " + type_name(value) + ", which templates cannot change,");
  }
  if (is_method(value, name)) return memory.function({name, value});
  if (value.is(Type::kDict)) {
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return missing(value, name, memory);
}

Value item(const Value& value, const Value& key, Memory& memory) {
  if (value.is(Type::kUndefined)) fail_undefined(value);
  if (value.is(Type::kMarkup)) fail("an item of a Markup is not supported");
  if (value.is(Type::kDict)) {
    if (const Value* found = value.dict().find(key, memory)) return *found;
  }
  if ((is_sequence(value) || value.is(Type::kRange)) && key.is_integer()) {
    const int64_t count = length(value), index = key.integer() < 0 ? key.integer() + count : key.integer();
    if (value.is(Type::kText)) memory.spend(value.text().size());
    if (index >= 0 && index < count) {
      if (!value.is(Type::kText)) return value.list().items[static_cast<size_t>(index)];
      const size_t begin = character_place(value.text(), index);
      size_t end = begin;
      character_at(value.text(), begin, end);
      return memory.text(value.text().substr(begin, end - begin));
    }
  }
  if (key.is(Type::kText)) return attribute(value, key.text(), memory);
  return missing(value, "of that key", memory);
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Memory& memory) {
  if (value.is(Type::kUndefined)) fail_undefined(value);
  if (!is_sequence(value)) fail("a slice of a ", type_name(value), " is not supported");
  const auto bound = [&](const Value& given) -> std::optional<int64_t> {
    if (given.is(Type::kNone)) return std::nullopt;
    if (!given.is_integer()) fail("slice indices must be integers or none, not ", type_name(given));
    return given.integer();
  };
  const int64_t count = length(value), by = bound(step).value_or(1);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? count : count - 1;
  const auto place = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + count : *given, lowest, highest);
  };
  const int64_t from = place(bound(start), by > 0 ? lowest : highest);
  const int64_t to = place(bound(stop), by > 0 ? highest : lowest);
  if (value.is(Type::kText)) {
    memory.spend(value.text().size());
    if (by == 1) {
      const size_t begin = character_place(value.text(), from), end = character_place(value.text(), std::max(from, to));
      return memory.text(value.text().substr(begin, end - begin));
    }
    const std::vector<Value> characters = items_of(value, memory);
    std::string text;
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by) text += characters[static_cast<size_t>(i)].text();
    return memory.text(std::move(text));
  }
  std::vector<Value> items;
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    items.push_back(value.list().items[static_cast<size_t>(i)]);
    if (by > INT32_MAX || by < -INT32_MAX) break;  // one item; avoids overflow
  }
  return memory.list(std::move(items), value.list().tuple);
}

Value binary(std::string_view sign, const Value& left, const Value& right, Memory& memory) {
  memory.spend(kCallPrice);
  if (sign == "~") {
    std::string text = to_text(left, memory);
    text += to_text(right, memory);
    return memory.text(std::move(text));
  }
  if (left.is_integer() && right.is_integer()) return of_integers(sign, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return of_floats(sign, left.number(), right.number());
  if (sign == "+" && left.is(Type::kText) && right.is(Type::kText)) {
    memory.spend(left.text().size() + right.text().size());
    return memory.text(left.text() + right.text());
  }
  if (sign == "+" && left.is_text() && right.is_text()) {  // one operand is Markup
    return memory.markup(escaped(left, memory) + escaped(right, memory));
  }
  if (sign == "+" && left.is(Type::kList) && right.is(Type::kList) && left.list().tuple == right.list().tuple) {
    memory.spend(kItemPrice * (length(left) + length(right)));
    std::vector<Value> items = left.list().items;
    items.insert(items.end(), right.list().items.begin(), right.list().items.end());
    return memory.list(std::move(items), left.list().tuple);
  }
  if (sign == "*" && is_sequence(left) && right.is_integer()) return repeated(left, right.integer(), memory);
  if (sign == "*" && left.is_integer() && is_sequence(right)) return repeated(right, left.integer(), memory);
  if (sign == "%" && left.is(Type::kText)) fail("text formatted with % is not supported");
  fail_operands(sign, left, right);
}

Value signed_value(std::string_view sign, const Value& value) {
  if (value.is(Type::kUndefined)) fail_undefined(value);
  if (!value.is_number()) fail("bad operand type for unary ", sign, ": '", type_name(value), "'");
  if (value.is(Type::kFloat)) return Value::of(sign == "-" ? -value.number() : value.number());
  return Value::of(sign == "-" ? whole(subtract, 0, value.integer()) : value.integer());
}

bool compare(std::string_view sign, const Value& left, const Value& right, Memory& memory) {
  memory.spend(kCallPrice);
  if (sign == "==") return equal(left, right, memory);
  if (sign == "!=") return !equal(left, right, memory);
  if (sign == "in") return contains(right, left, memory);
  if (sign == "not in") return !contains(right, left, memory);
  for (const Value* side : {&left, &right}) {
    if (side->is(Type::kUndefined)) fail_undefined(*side);
  }
  if (sign == "<") return less(left, right, memory);
  if (sign == ">") return less(right, left, memory);
  if (sign == "<=") return less(left, right, memory) || equal(left, right, memory);
  return less(right, left, memory) || equal(left, right, memory);
}

}  // namespace mft::jinja
