#include "runtime/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/jinja/filters.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

constexpr int64_t kMostIndent = 16;  // maximum characters of indent or separators

/// Converts the events of nlohmann's parser to values.
class Reader {
 public:
  explicit Reader(Memory& memory) : memory_(memory) {}

  bool null() { return add(Value::none()); }
  bool boolean(bool value) { return add(Value::of(value)); }
  bool number_integer(int64_t value) { return add(Value::of(value)); }
  bool number_unsigned(uint64_t value) {
    if (value > INT64_MAX) fail("integers of more than 63 bits are not supported: ", value);
    return add(Value::of(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == text.npos) fail("integers of more than 63 bits are not supported: ", text);
    return add(Value::of(value));
  }
  bool string(std::string& text) { return add(memory_.text(std::move(text))); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open({memory_.dict(), {}, {}}); }
  bool key(std::string& text) {
    levels_.back().key = memory_.text(std::move(text));
    return true;
  }
  bool end_object() { return close(Value::of(levels_.back().dict)); }
  bool start_array(size_t) { return open({nullptr, {}, {}}); }
  bool end_array() { return close(memory_.list(std::move(levels_.back().items))); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    const std::string_view text = error.what();  // [json.exception.parse_error.101] parse error at ...
    const size_t end = text.find("] ");
    fail(end == text.npos ? text : text.substr(end + 2));
  }

  Value value() const { return value_; }

 private:
  struct Level {
    Dict* dict;  // nullptr for a list
    std::vector<Value> items;
    Value key;
  };

  bool open(Level level) {
    if (levels_.size() >= static_cast<size_t>(kMostDepth)) fail("nested deeper than ", kMostDepth, " levels");
    levels_.push_back(std::move(level));
    return true;
  }
  bool close(Value value) {
    levels_.pop_back();
    return add(value);
  }
  bool add(Value value) {
    memory_.spend(kStepPrice);
    if (levels_.empty()) {
      value_ = value;
    } else if (levels_.back().dict != nullptr) {
      levels_.back().dict->set(levels_.back().key, value, memory_);
    } else {
      memory_.spend(kItemPrice);
      levels_.back().items.push_back(value);
    }
    return true;
  }

  Memory& memory_;
  std::vector<Level> levels_;
  Value value_;
};

/// The settings of Python's json.dumps.
struct Style {
  bool ascii = false, indented = false, sorted = false;
  std::string indent, between_items = ", ", between_key_and_value = ": ";
};

Style style_of(CallArguments& arguments) {
  arguments.match({"ensure_ascii", "indent", "separators", "sort_keys"});
  Style style;
  style.ascii = arguments.flag(0);
  style.sorted = arguments.flag(3);
  if (arguments.has(1) && !arguments.at(1).is(Type::kNone)) {
    style.indented = true;
    style.between_items = ",";
    if (arguments.at(1).is(Type::kText)) {
      style.indent = arguments.text(1);
    } else {
      const int64_t width = std::max<int64_t>(arguments.integer(1, 0), 0);
      if (width > kMostIndent) fail("tojson: indents of more than ", kMostIndent, " are not supported");
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (arguments.has(2) && !arguments.at(2).is(Type::kNone)) {
    const Value& given = arguments.at(2);
    if (!given.is(Type::kList) || given.list().items.size() != 2 || !given.list().items[0].is(Type::kText) ||
        !given.list().items[1].is(Type::kText)) {
      fail("tojson: separators must be two strings");
    }
    style.between_items = given.list().items[0].text();
    style.between_key_and_value = given.list().items[1].text();
  }
  if (static_cast<int64_t>(std::max(style.indent.size(),
                                    style.between_items.size() + style.between_key_and_value.size())) > kMostIndent) {
    fail("tojson: indents and separators of more than ", kMostIndent, " characters are not supported");
  }
  return style;
}

class Writer {
 public:
  Writer(Style style, Memory& memory) : style_(std::move(style)), memory_(memory) {}

  std::string text(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int depth) {
    if (depth > kMostDepth) fail("lists nested deeper than ", kMostDepth, " levels are not supported");
    const size_t before = out_.size();
    switch (value.type()) {
      case Type::kNone:
        out_ += "null";
        break;
      case Type::kBool:
        out_ += is_true(value) ? "true" : "false";
        break;
      case Type::kInt:
        out_ += std::to_string(value.integer());
        break;
      case Type::kFloat:
        out_ += number(value.number());
        break;
      case Type::kText:
      case Type::kMarkup:
        write_text(value.text());
        break;
      case Type::kList:
        write_list(value.list(), depth);
        break;
      case Type::kDict:
        write_dict(value.dict(), depth);
        break;
      default:
        fail("Object of type ", type_name(value), " is not JSON serializable");
    }
    memory_.spend(kStepPrice + static_cast<int64_t>(out_.size() - before));
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  void new_line(int depth) {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  void write_list(const List& list, int depth) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.between_items;
      new_line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) new_line(depth);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<std::pair<Value, Value>> items = dict.items();
    memory_.spend(kItemPrice * static_cast<int64_t>(items.size()));
    if (style_.sorted) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto& a, const auto& b) { return less(a.first, b.first, memory_); });
    }
    out_ += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.between_items;
      new_line(depth + 1);
      write_text(key(items[i].first));
      out_ += style_.between_key_and_value;
      write(items[i].second, depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out_ += '}';
  }

  static std::string key(const Value& value) {
    switch (value.type()) {
      case Type::kText:
        return value.text();
      case Type::kNone:
        return "null";
      case Type::kBool:
        return is_true(value) ? "true" : "false";
      case Type::kInt:
        return std::to_string(value.integer());
      case Type::kFloat:
        return number(value.number());
      default:
        fail("keys must be str, int, float, bool or None, not ", type_name(value));
    }
  }

  void write_text(const std::string& text) {
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      size_t next = i;
      const char32_t c = character_at(text, i, next);
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      const size_t special = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : kSpecial.npos;
      if (special != kSpecial.npos) {
        out_ += '\\';
        out_ += kLetters[special];
      } else if (c < 0x20 || (style_.ascii && c >= 0x7f)) {
        write_escape(c);
      } else {
        out_.append(text, i, next - i);
      }
      i = next;
    }
    out_ += '"';
  }

  void write_escape(char32_t c) {
    if (c >= 0x10000) {
      write_escape(0xd800 + ((c - 0x10000) >> 10));
      write_escape(0xdc00 + ((c - 0x10000) & 0x3ff));
      return;
    }
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += "0123456789abcdef"[(c >> shift) & 15];
  }

  Style style_;
  Memory& memory_;
  std::string out_;
};

}  // namespace

Value read_json(std::string_view text, Memory& memory) {
  Reader reader(memory);
  nlohmann::json::sax_parse(text, &reader);
  return reader.value();
}

std::string json_text(const Value& value, CallArguments& arguments, Memory& memory) {
  return Writer(style_of(arguments), memory).text(value);
}

}  // namespace mft::jinja
