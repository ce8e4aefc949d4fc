#pragma once

#include <string>
#include <string_view>

namespace mft {

// Python's methods of str, for valid UTF-8.

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
/// Converts each word's first letter to title case, and all others to lower case.
std::string title_case(std::string_view text);
/// Converts the first character to title case, and all others to lower case.
std::string capitalized(std::string_view text);

/// Whether a character satisfies str.islower(), isupper(), isalpha(), isdigit() and isnumeric().
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_numeral(char32_t c);

}  // namespace mft
