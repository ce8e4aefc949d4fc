#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/jinja/filter_tables.h"
#include "runtime/jinja/operators.h"

namespace mft::jinja {
namespace {

/// The digits of a text for int() and float(), without surrounding blanks, a plus, and underscores between digits.
struct Digits {
  std::string text;
  bool valid;
};

Digits digits_of(const std::string& given) {
  if (std::any_of(given.begin(), given.end(), [](char c) { return (c & 0x80) != 0 || (c >= 0x1c && c <= 0x1f); })) {
    fail("numbers in text other than ASCII are not supported");
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

/// float() of a text. Returns false if it is not a number. Throws Error for numbers that are not supported.
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
  if (base < 2 || base > 36) fail("int() base must be from 2 to 36");
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
    if (is_integer && read.ec != std::errc()) fail("integers of more than 63 bits are not supported");
    if (is_integer) return Value::of(negative ? -whole : whole);
    if (!read_float(value.text(), number)) return otherwise;
  } else {
    return otherwise;
  }
  if (std::isinf(number) && value.is(Type::kText)) return otherwise;
  if (!(std::abs(number) < 9.2e18)) fail("integers of more than 63 bits are not supported");
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

}  // namespace

const FilterTable& number_filters() {
  static const FilterTable table = {
      {"abs", absolute},
      {"float", to_float},
      {"int", to_int},
  };
  return table;
}

}  // namespace mft::jinja
