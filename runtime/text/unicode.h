#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// General categories in the order of their names in runtime/text/unicode_tables.cpp.
enum class Category : uint8_t {
  kCc,
  kCf,
  kCn,
  kCo,
  kCs,
  kLl,
  kLm,
  kLo,
  kLt,
  kLu,
  kMc,
  kMe,
  kMn,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPe,
  kPf,
  kPi,
  kPo,
  kPs,
  kSc,
  kSk,
  kSm,
  kSo,
  kZl,
  kZp,
  kZs
};

/// Of a code point; what Unicode has not assigned is Cn.
Category category_of(char32_t c);
/// Categories as a set: bit `category`. "L" is all letters, "Lu" upper-case ones. 0 where there is no such name.
uint32_t categories_named(std::string_view name);
inline bool is_in(uint32_t categories, char32_t c) { return categories >> static_cast<int>(category_of(c)) & 1; }

/// Unicode's White_Space.
bool is_space(char32_t c);
/// Rust's char::is_numeric, of a later Unicode than the categories are.
bool is_numeric(char32_t c);
/// Letters, marks, decimal digits, connectors, and numbers and symbols that are letters: \w but for a few characters.
bool is_word(char32_t c);

/// The character that begins at `at`, and past its end. `text` is valid UTF-8.
char32_t character_at(std::string_view text, size_t at, size_t& end);
/// Where the last character before `end` begins; `end` is above 0.
size_t character_before(std::string_view text, size_t end);
void append_utf8(std::string& text, char32_t c);
/// Where `text` is no UTF-8, std::string_view::npos where all of it is.
size_t invalid_utf8(std::string_view text);
/// With U+FFFD for what is no UTF-8, one for each longest beginning of a character.
std::string valid_utf8(std::string_view bytes);

/// Canonical decomposition of one step: nothing where there is none, one or two characters.
struct Decomposition {
  char32_t first, second;  // second: 0 where there is none
};
const Decomposition* decomposition_of(char32_t c);
/// What two characters compose to, 0 where nothing.
char32_t composed(char32_t first, char32_t second);
/// Canonical combining class.
uint8_t combining_class(char32_t c);

}  // namespace mft
