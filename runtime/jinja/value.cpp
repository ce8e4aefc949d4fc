#include "runtime/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/jinja/memory.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

void check_depth(int depth) {
  if (depth > kMostDepth) fail("lists nested deeper than ", kMostDepth, " levels are not supported");
}

/// Compares two numbers. The result is below, equal to or above 0.
int order_of(const Value& one, const Value& other) {
  constexpr double kExact = 9007199254740992;  // above it, not all integers are exact doubles
  for (const Value* value : {&one, &other}) {
    if (std::isnan(value->number())) fail("comparison with nan is not supported");
    if (value->is_integer() && std::abs(value->number()) >= kExact) {
      fail("comparison of integers of more than 53 bits with floats is not supported");
    }
  }
  return one.number() < other.number() ? -1 : one.number() == other.number() ? 0 : 1;
}

bool equal_at(const Value& one, const Value& other, Memory& memory, int depth);

bool equal_lists(const List& one, const List& other, Memory& memory, int depth) {
  if (one.tuple != other.tuple || one.items.size() != other.items.size()) return false;
  for (size_t i = 0; i < one.items.size(); ++i) {
    if (!equal_at(one.items[i], other.items[i], memory, depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& one, const Dict& other, Memory& memory, int depth) {
  if (one.size() != other.size()) return false;
  for (const auto& [key, value] : one.items()) {
    const Value* found = other.find(key, memory);
    if (found == nullptr || !equal_at(value, *found, memory, depth + 1)) return false;
  }
  return true;
}

bool equal_at(const Value& one, const Value& other, Memory& memory, int depth) {
  check_depth(depth);
  memory.spend(kStepPrice);
  if (one.is_integer() && other.is_integer()) return one.integer() == other.integer();
  if (one.is_number() && other.is_number()) return order_of(one, other) == 0;
  if (one.is_text() && other.is_text()) {
    if (one.text().size() != other.text().size()) return false;
    memory.spend(one.text().size());
    return one.text() == other.text();
  }
  if (one.type() != other.type()) return false;
  switch (one.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kList:
    case Type::kRange:
      return equal_lists(one.list(), other.list(), memory, depth);
    case Type::kDict:
      return equal_dicts(one.dict(), other.dict(), memory, depth);
    case Type::kView:
      fail("comparison of views of dicts is not supported");
    case Type::kFunction:
      // Python creates method objects each time, and compares their objects.
      if (one.function().macro == nullptr) fail("comparison of functions is not supported");
      return one.same(other);
    default:
      return one.same(other);
  }
}

bool less_at(const Value& one, const Value& other, Memory& memory, int depth) {
  check_depth(depth);
  memory.spend(kStepPrice);
  if (one.is_integer() && other.is_integer()) return one.integer() < other.integer();
  if (one.is_number() && other.is_number()) return order_of(one, other) < 0;
  if (one.is(Type::kText) && other.is(Type::kText)) {
    memory.spend(std::min(one.text().size(), other.text().size()));
    return one.text() < other.text();  // UTF-8 has the order of the characters
  }
  if (one.is(Type::kList) && other.is(Type::kList) && one.list().tuple == other.list().tuple) {
    const auto &a = one.list().items, &b = other.list().items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal_at(a[i], b[i], memory, depth + 1)) return less_at(a[i], b[i], memory, depth + 1);
    }
    return a.size() < b.size();
  }
  fail("'<' not supported between instances of '", type_name(one), "' and '", type_name(other), "'");
}

bool is_printable(char32_t c) {
  static const uint32_t others = categories_named("C") | categories_named("Z");
  return c == ' ' || !is_in(others, c);
}

void append_hex(std::string& out, char32_t c) {
  constexpr const char* kDigits = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += kDigits[(c >> (4 * i)) & 15];
}

/// Python's repr of a text.
std::string quoted(const std::string& text) {
  const bool twice = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = twice ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    size_t next = i;
    const char32_t c = character_at(text, i, next);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(text, i, next - i);
    } else {
      append_hex(out, c);
    }
    i = next;
  }
  return out + quote;
}

void write(const Value& value, std::string& out, Memory& memory, bool quote, int depth);

void write_list(const List& list, std::string& out, Memory& memory, int depth) {
  out += list.tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    write(list.items[i], out, memory, true, depth + 1);
  }
  if (list.tuple && list.items.size() == 1) out += ',';
  out += list.tuple ? ')' : ']';
}

void write_dict(const Dict& dict, std::string& out, Memory& memory, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out += ", ";
    first = false;
    write(key, out, memory, true, depth + 1);
    out += ": ";
    write(value, out, memory, true, depth + 1);
  }
  out += '}';
}

void write(const Value& value, std::string& out, Memory& memory, bool quote, int depth) {
  check_depth(depth);
  const size_t before = out.size();
  switch (value.type()) {
    case Type::kUndefined:
      out += quote ? "Undefined" : "";
      break;
    case Type::kNone:
      out += "None";
      break;
    case Type::kBool:
      out += value.integer() != 0 ? "True" : "False";
      break;
    case Type::kInt:
      out += std::to_string(value.integer());
      break;
    case Type::kFloat:
      out += float_text(value.number());
      break;
    case Type::kText:
      out += quote ? quoted(value.text()) : value.text();
      break;
    case Type::kList:
      write_list(value.list(), out, memory, depth);
      break;
    case Type::kDict:
      write_dict(value.dict(), out, memory, depth);
      break;
    case Type::kMarkup:
      out += quote ? "Markup(" + quoted(value.text()) + ")" : value.text();
      break;
    case Type::kView:
      out += value.list().view;
      out += '(';
      write_list(value.list(), out, memory, depth);
      out += ')';
      break;
    case Type::kNamespace:
      out += "<Namespace ";
      write_dict(value.dict(), out, memory, depth);
      out += '>';
      break;
    default:
      fail("conversion of a ", type_name(value), " to text is not supported");
  }
  memory.spend(kStepPrice + static_cast<int64_t>(out.size() - before));
}

}  // namespace

namespace {

/// Throws Error for values that Python cannot hash.
void check_key(const Value& key, Memory& memory, int depth) {
  check_depth(depth);
  memory.spend(kStepPrice);
  if (key.is(Type::kList) && key.list().tuple) {
    for (const Value& one : key.list().items) check_key(one, memory, depth + 1);
  } else if (!key.is(Type::kNone) && !key.is(Type::kUndefined) && !key.is_number() && !key.is(Type::kText)) {
    fail("a ", type_name(key), " cannot be the key of a dict");
  }
}

}  // namespace

bool Value::same(const Value& other) const {
  if (type_ != other.type_) return false;
  switch (type_) {
    case Type::kNone:
      return true;
    case Type::kBool:
    case Type::kInt:
      return integer_ == other.integer_;
    case Type::kFloat:
      return real_ == other.real_;
    default:
      return text_ == other.text_;
  }
}

const Value* Dict::find(std::string_view key) const {
  const auto found = by_text_.find(key);
  return found == by_text_.end() ? nullptr : &items_[found->second].second;
}

const Value* Dict::find(const Value& key, Memory& memory) const {
  if (key.is(Type::kText)) {
    memory.spend(key.text().size());
    return find(key.text());
  }
  check_key(key, memory, 0);
  if (by_text_.size() == items_.size()) return nullptr;
  for (const auto& [other, value] : items_) {
    if (equal(key, other, memory)) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, const Value& value, Memory& memory) {
  if (const Value* found = find(key, memory)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  memory.spend(kItemPrice);
  if (key.is(Type::kText)) by_text_[key.text()] = items_.size();
  items_.emplace_back(key, value);
}

const char* type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kText:
      return "str";
    case Type::kMarkup:
      return "Markup";
    case Type::kRange:
      return "range";
    case Type::kView:
      return value.list().view;
    case Type::kIterator:
      return "generator";
    case Type::kList:
      return value.list().tuple ? "tuple" : "list";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kFunction:
      return "function";
    case Type::kLoop:
      return "loop";
  }
  return "value";
}

bool is_true(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.integer() != 0;
    case Type::kFloat:
      return value.number() != 0;
    case Type::kText:
    case Type::kMarkup:
      return !value.text().empty();
    case Type::kList:
    case Type::kRange:
    case Type::kView:
      return !value.list().items.empty();
    case Type::kDict:
      return value.dict().size() > 0;
    default:
      return true;
  }
}

bool equal(const Value& one, const Value& other, Memory& memory) { return equal_at(one, other, memory, 0); }
bool less(const Value& one, const Value& other, Memory& memory) { return less_at(one, other, memory, 0); }

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
}

int64_t length(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kText:
    case Type::kMarkup:
      return count_characters(value.text());
    case Type::kList:
    case Type::kRange:
    case Type::kView:
      return static_cast<int64_t>(value.list().items.size());
    case Type::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Type::kLoop:
      while (value.loop().fetch && value.loop().fetch()) {
      }
      return static_cast<int64_t>(value.loop().items.size());
    default:
      fail("object of type '", type_name(value), "' has no len()");
  }
}

bool read_real(const std::string& text, double& number) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  stream >> number;
  if (stream.fail() && std::abs(number) == std::numeric_limits<double>::max()) {
    fail("the number ", text, " is too large");
  }
  return !stream.fail() && stream.peek() == std::char_traits<char>::eof();
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string shortest(buffer, end);  // such as -1.25e+03
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(shortest.substr(e + 1));
  std::string sign = shortest[0] == '-' ? "-" : "", digits = shortest.substr(sign.size(), e - sign.size());
  if (exponent < -4 || exponent >= 16) {
    const int size = std::abs(exponent);
    return sign + digits + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string rest = digits.substr(whole);
  return sign + digits.substr(0, whole) + "." + (rest.empty() ? "0" : rest);
}

std::string to_text(const Value& value, Memory& memory) {
  std::string out;
  write(value, out, memory, false, 0);
  return out;
}

std::vector<Value> items_of(const Value& value, Memory& memory) {
  std::vector<Value> items;
  switch (value.type()) {
    case Type::kUndefined:
      break;
    case Type::kList:
    case Type::kRange:
    case Type::kView:
      memory.spend(kItemPrice * static_cast<int64_t>(value.list().items.size()));
      return value.list().items;
    case Type::kIterator: {
      Iterator& iterator = value.iterator();
      if (iterator.busy) fail("a generator cannot be used while a loop iterates over it");
      memory.spend(kItemPrice * static_cast<int64_t>(iterator.items.size() - iterator.next));
      items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    case Type::kDict:
      memory.spend(kItemPrice * static_cast<int64_t>(value.dict().size()));
      for (const auto& [key, _] : value.dict().items()) items.push_back(key);
      break;
    case Type::kText:
      for (size_t i = 0, next = 0; i < value.text().size(); i = next) {
        character_at(value.text(), i, next);
        memory.spend(kItemPrice);
        items.push_back(memory.text(value.text().substr(i, next - i)));
      }
      break;
    default:
      fail("'", type_name(value), "' object is not iterable");
  }
  return items;
}

}  // namespace mft::jinja
