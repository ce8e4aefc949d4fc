#pragma once

#include <string>
#include <string_view>

namespace mft {

// Python's methods of str, of valid UTF-8.

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
/// Each word's first letter in title case, all else in lower case.
std::string title_case(std::string_view text);
/// The first character in title case, all else in lower case.
std::string capitalized(std::string_view text);

/// Whether a character is what str.islower(), isupper(), isalpha(), isdigit() and isnumeric() ask for.
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_numeral(char32_t c);

}  // namespace mft
