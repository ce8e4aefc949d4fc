#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mft {

/// General categories as a set of bits: "L" is all letters, "Lu" upper-case ones. Returns 0 for an unknown name.
uint32_t categories_named(std::string_view name);
/// Whether a code point has one of these categories. Unassigned code points are Cn.
bool is_in(uint32_t categories, char32_t c);

/// Unicode's White_Space.
bool is_space(char32_t c);
/// Rust's char::is_numeric, which uses a later version of Unicode than the categories.
bool is_numeric(char32_t c);
/// Letters, marks, decimal digits, connectors, and numbers and symbols that are letters: \w except for a few
/// characters.
bool is_word(char32_t c);

/// Returns the character that begins at `at`, and sets `end` to its end. `text` is valid UTF-8.
char32_t character_at(std::string_view text, size_t at, size_t& end);
/// Returns the beginning of the last character before `end`, which is above 0.
size_t character_before(std::string_view text, size_t end);
/// Returns the position after the characters from `at` on for which `is` is true.
template <typename Is>
size_t skip(std::string_view text, size_t at, Is is) {
  for (size_t next; at < text.size() && is(character_at(text, at, next));) at = next;
  return at;
}
/// Returns the beginning of the characters before `end` for which `is` is true.
template <typename Is>
size_t skip_back(std::string_view text, size_t end, Is is) {
  for (size_t past; end > 0 && is(character_at(text, character_before(text, end), past));) {
    end = character_before(text, end);
  }
  return end;
}
void append_utf8(std::string& text, char32_t c);
/// Returns the position of the first invalid UTF-8, or std::string_view::npos if `text` is valid.
size_t invalid_utf8(std::string_view text);
/// Replaces invalid UTF-8 by U+FFFD, one for each longest beginning of a character.
std::string valid_utf8(std::string_view bytes);

/// Canonical decomposition in one step, to one or two characters, or nothing if there is none.
struct Decomposition {
  char32_t first, second;  // second: 0 if there is none
};
std::optional<Decomposition> decomposition_of(char32_t c);
/// Returns the composition of two characters, or 0 if there is none.
char32_t composed(char32_t first, char32_t second);
/// Canonical combining class.
uint8_t combining_class(char32_t c);

}  // namespace mft
