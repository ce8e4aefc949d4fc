#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mft {

/// General categories as a set of bits: "L" is all letters, "Lu" upper-case ones. 0 where there is no such name.
uint32_t categories_named(std::string_view name);
/// Whether a code point is of one of them. What Unicode has not assigned is Cn.
bool is_in(uint32_t categories, char32_t c);

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
/// Past the characters from `at` on that `is` holds of.
template <typename Is>
size_t skip(std::string_view text, size_t at, Is is) {
  for (size_t next; at < text.size() && is(character_at(text, at, next));) at = next;
  return at;
}
/// Where the characters before `end` begin that `is` holds of.
template <typename Is>
size_t skip_back(std::string_view text, size_t end, Is is) {
  for (size_t past; end > 0 && is(character_at(text, character_before(text, end), past));) {
    end = character_before(text, end);
  }
  return end;
}
void append_utf8(std::string& text, char32_t c);
/// Where `text` is no UTF-8, std::string_view::npos where all of it is.
size_t invalid_utf8(std::string_view text);
/// With U+FFFD for what is no UTF-8, one for each longest beginning of a character.
std::string valid_utf8(std::string_view bytes);

/// Canonical decomposition of one step, to one or two characters; nothing where there is none.
struct Decomposition {
  char32_t first, second;  // second: 0 where there is none
};
std::optional<Decomposition> decomposition_of(char32_t c);
/// What two characters compose to, 0 where nothing.
char32_t composed(char32_t first, char32_t second);
/// Canonical combining class.
uint8_t combining_class(char32_t c);

}  // namespace mft
