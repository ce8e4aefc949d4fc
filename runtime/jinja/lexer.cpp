#include "runtime/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
/// The characters of Python's \s.
bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }

/// Normalizes line ends and removes the last one.
std::string normalized(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized(source)) {}

  std::vector<Token> tokens() {
    while (read_data()) {
    }
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... What>
  [[noreturn]] void fail_here(const What&... what) const {
    fail("line ", line_, ": ", what...);
  }

  bool starts(std::string_view with) const { return std::string_view(text_).substr(at_, with.size()) == with; }
  char next(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void add(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_starts_ = text_[end - 1] == '\n';
    at_ = end;
  }

  /// Reads the text up to the next tag, and the tag. Returns false at the end.
  bool read_data() {
    size_t tag = at_;
    do {
      tag = text_.find('{', tag);
      if (tag == text_.npos || tag + 1 == text_.size()) {
        if (at_ < text_.size()) add(TokenType::kData, text_.substr(at_));
        return false;
      }
      ++tag;
    } while (text_[tag] != '{' && text_[tag] != '%' && text_[tag] != '#');
    const char kind = text_[tag++];
    const char sign = tag < text_.size() && (text_[tag] == '-' || text_[tag] == '+') ? text_[tag] : '\0';
    const size_t data_end = tag - 2;
    add_data(data_end, sign, kind != '{');
    advance_to(tag + (sign != '\0' ? 1 : 0));
    const size_t raw_end = kind == '%' ? end_of_tag(at_, "raw", false) : text_.npos;
    if (kind == '#') {
      read_comment();
    } else if (raw_end != text_.npos) {
      read_raw(raw_end);
    } else {
      read_tag(kind == '%');
    }
    return true;
  }

  /// Returns the text before a tag, without the blanks that the tag strips.
  void add_data(size_t end, char sign, bool trims) {
    std::string_view data = std::string_view(text_).substr(at_, end - at_);
    if (sign == '-') {
      data = data.substr(0, skip_back(data, data.size(), is_python_space));
    } else if (sign != '+' && trims) {
      const size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
      const bool blank = skip(data, line, is_python_space) == data.size();
      if ((line > 0 || line_starts_) && blank) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenType::kData, std::string(data));
  }

  /// Moves past the end of a tag, and the text that it strips.
  void pass_end(char sign, bool trims) {
    if (sign == '-') {
      advance_to(skip(text_, at_, is_python_space));
    } else if (sign != '+' && trims && next() == '\n') {
      advance_to(at_ + 1);
    }
  }

  void read_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail_here("a comment has no end");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    advance_to(end + 2);
    pass_end(sign, true);
  }

  /// Returns the end of a tag that only has the word at `at`: the position of %} or -%}. Returns npos for any other
  /// tag.
  size_t end_of_tag(size_t at, std::string_view word, bool takes_plus) const {
    at = skip(text_, at, is_python_space);
    if (text_.compare(at, word.size(), word) != 0) return text_.npos;
    at = skip(text_, at + word.size(), is_python_space);
    const char sign = at < text_.size() ? text_[at] : '\0';
    const bool has_sign = sign == '-' || (takes_plus && sign == '+');
    return text_.compare(at + (has_sign ? 1 : 0), 2, "%}") == 0 ? at : text_.npos;
  }

  /// Reads {% raw %}. The text up to {% endraw %} has no tags.
  void read_raw(size_t end) {
    const bool trims = text_[end] == '-';
    advance_to(end + (trims ? 3 : 2));
    pass_end(trims ? '-' : '\0', false);
    for (size_t open = text_.find("{%", at_); open != text_.npos; open = text_.find("{%", open + 2)) {
      size_t word = open + 2;
      const char open_sign = word < text_.size() ? text_[word] : '\0';
      if (open_sign == '-' || open_sign == '+') ++word;
      const size_t close = end_of_tag(word, "endraw", true);
      if (close == text_.npos) continue;
      add_data(open, open_sign, true);
      const char close_sign = text_[close];
      advance_to(close + (close_sign == '%' ? 2 : 3));
      pass_end(close_sign, true);
      return;
    }
    fail_here("a raw block has no end");
  }

  void read_tag(bool block) {
    add(block ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    std::string open;  // open brackets
    for (;;) {
      advance_to(skip(text_, at_, is_python_space));
      if (at_ >= text_.size()) fail_here("a tag has no end");
      if (open.empty() && read_end(block)) return;
      read_token(open);
    }
  }

  bool read_end(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    const bool has_sign = next() == '-' || (block && next() == '+');
    if (std::string_view(text_).substr(at_ + (has_sign ? 1 : 0), 2) != end) return false;
    const char sign = has_sign ? next() : '\0';
    add(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
    advance_to(at_ + (has_sign ? 3 : 2));
    pass_end(sign, block);
    return true;
  }

  void read_token(std::string& open) {
    const char c = next();
    if (is_digit(c)) {
      read_number();
    } else if (is_name_start(c)) {
      size_t end = at_;
      while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
      add(TokenType::kName, text_.substr(at_, end - at_));
      advance_to(end);
    } else if (c == '\'' || c == '"') {
      read_text(c);
    } else {
      read_sign(open);
    }
  }

  void read_sign(std::string& open) {
    static constexpr std::array<std::string_view, 6> kTwo = {"**", "//", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}>=<.:|,;";
    for (const std::string_view two : kTwo) {
      if (starts(two)) {
        add(TokenType::kSign, std::string(two));
        advance_to(at_ + 2);
        return;
      }
    }
    const char c = next();
    if (c & 0x80) fail_here("names with characters other than ASCII are not supported");
    if (kOne.find(c) == kOne.npos) fail_here("unexpected character '", c, "'");
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_here("unexpected '", c, "'");
      open.pop_back();
    }
    add(TokenType::kSign, std::string(1, c));
    advance_to(at_ + 1);
  }

  /// Returns the end of the digits from `at`, with underscores between digits.
  template <typename Is>
  size_t digits_end(size_t at, Is is) const {
    const auto has = [&](size_t i) { return i < text_.size() && is(text_[i]); };
    while (has(at) || (at < text_.size() && text_[at] == '_' && has(at + 1))) ++at;
    return at;
  }

  void read_number() {
    const char kind = next() == '0' ? static_cast<char>(next(1) | 0x20) : '\0';
    const auto is_hex = [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    const auto is_bit = [](char c) { return c == '0' || c == '1'; };
    size_t end = at_;
    TokenType type = TokenType::kInt;
    if (kind == 'x' || kind == 'o' || kind == 'b') {
      end = kind == 'x'   ? digits_end(at_ + 2, is_hex)
            : kind == 'o' ? digits_end(at_ + 2, is_octal)
                          : digits_end(at_ + 2, is_bit);
    } else {
      end = digits_end(at_, is_digit);
      const bool after_dot = text_[at_ - 1] == '.';
      if (!after_dot && end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        end = digits_end(end + 1, is_digit);
        type = TokenType::kFloat;
      }
      size_t exponent = end + 1;
      if (!after_dot && end < text_.size() && (text_[end] | 0x20) == 'e') {
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
        if (exponent < text_.size() && is_digit(text_[exponent])) {
          end = digits_end(exponent, is_digit);
          type = TokenType::kFloat;
        }
      }
    }
    if (type == TokenType::kInt && kind != 'x' && kind != 'o' && kind != 'b' && next() == '0') {
      const auto is_zero = [](char c) { return c == '0'; };
      if (end > digits_end(at_, is_zero)) fail_here("an integer begins with 0");
    }
    std::string digits = text_.substr(at_, end - at_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    add(type, digits);
    advance_to(end);
  }

  void read_text(char quote) {
    const int line = line_;
    std::string value;
    size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] != '\\') {
        value += text_[i];
      } else if (++i < text_.size()) {
        read_escape(i, value);
      }
    }
    if (i >= text_.size()) fail_here("a string has no end");
    advance_to(i + 1);
    tokens_.push_back({TokenType::kText, std::move(value), line});
  }

  /// Decodes the escape at `i`, after a backslash, and leaves `i` at its last character.
  void read_escape(size_t& i, std::string& value) const {
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[i];
    const size_t name = kNames.find(c);
    if (name != kNames.npos) {
      value += kValues[name];
    } else if (c == '\n') {  // line continuation
    } else if (c >= '0' && c <= '7') {
      append_utf8(value, number(i, i + 3, 8));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const size_t begin = ++i;
      const char32_t character = number(i, begin + digits, 16);
      if (i + 1 != begin + digits || character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) {
        fail_here("a string has an escape \\", c, " that is not a character");
      }
      append_utf8(value, character);
    } else if ((c & 0x80) != 0 || c == 'N') {  // Jinja escapes the number of the character after the backslash
      fail_here("a backslash before ", c == 'N' ? "N" : "a character other than ASCII",
                " is not supported in a string");
    } else {
      value += '\\';
      value += c;
    }
  }

  /// Decodes digits from `i` to at most `end`, and leaves `i` at the last one.
  char32_t number(size_t& i, size_t end, int base) const {
    char32_t value = 0;
    for (; i < std::min(end, text_.size()); ++i) {
      const char c = static_cast<char>(text_[i] | 0x20);
      const int digit = is_digit(text_[i]) ? text_[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
      if (digit >= base) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    --i;
    return value;
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // whether at_ is at the beginning of a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const size_t invalid = invalid_utf8(source);
  if (invalid != source.npos) fail("not valid UTF-8 at byte ", invalid);
  return Lexer(source).tokens();
}

}  // namespace mft::jinja
