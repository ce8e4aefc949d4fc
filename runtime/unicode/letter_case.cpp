#include "runtime/unicode/letter_case.h"

#include <algorithm>

#include "runtime/unicode/unicode.h"
#include "runtime/unicode/unicode_tables.h"

namespace mft {
namespace {

constexpr char32_t kSigma = 0x3a3, kSmallSigma = 0x3c3, kFinalSigma = 0x3c2;
constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;

bool is_among(const CharacterRange* ranges, size_t count, char32_t c) {
  const CharacterRange* range =
      std::upper_bound(ranges, ranges + count, c, [](char32_t x, const CharacterRange& r) { return x < r.first; });
  return range != ranges && c <= (range - 1)->last;
}

/// Looks up a character in a table of runs. Returns false if it has no entry.
bool map(const CaseRun* runs, size_t count, char32_t c, char32_t& mapped) {
  const CaseRun* run =
      std::upper_bound(runs, runs + count, c, [](char32_t x, const CaseRun& r) { return x < r.first; });
  if (run == runs) return false;
  --run;
  const char32_t distance = c - run->first;
  if (distance % run->stride != 0 || distance / run->stride >= run->count) return false;
  mapped = static_cast<char32_t>(static_cast<int64_t>(c) + run->delta);
  return true;
}

void append_upper(std::string& out, char32_t c, bool title) {
  const CaseExpansion* end = kExpansions + kExpansionCount;
  const CaseExpansion* row =
      std::lower_bound(kExpansions, end, c, [](const CaseExpansion& r, char32_t x) { return r.character < x; });
  if (row != end && row->character == c) {
    for (const char16_t part : title ? row->title : row->upper) {
      if (part != 0) append_utf8(out, part);
    }
    return;
  }
  char32_t mapped = c;
  if (!title || !map(kTitleRuns, kTitleRunCount, c, mapped)) map(kUpperRuns, kUpperRunCount, c, mapped);
  append_utf8(out, mapped);
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_ignorable(char32_t c) {
  static const uint32_t ignorable = categories_named("Mn") | categories_named("Me") | categories_named("Cf") |
                                    categories_named("Lm") | categories_named("Sk");
  return is_in(ignorable, c) != is_among(kIgnorableExceptions, kIgnorableExceptionCount, c);
}

/// Whether the sigma in text[begin, end) ends a word: it is preceded by a letter and not followed by one.
bool is_final(std::string_view text, size_t begin, size_t end) {
  size_t past = 0;
  const size_t before = skip_back(text, begin, is_ignorable), behind = skip(text, end, is_ignorable);
  if (before == 0 || !is_cased(character_at(text, character_before(text, before), past))) return false;
  return behind == text.size() || !is_cased(character_at(text, behind, past));
}

/// Returns the character in text[begin, end) in lower case.
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  char32_t mapped = c;
  if (c == kSigma) {
    mapped = is_final(text, begin, end) ? kFinalSigma : kSmallSigma;
  } else if (c == kDottedI) {
    mapped = 'i';
  } else {
    map(kLowerRuns, kLowerRunCount, c, mapped);
  }
  append_utf8(out, mapped);
  if (c == kDottedI) append_utf8(out, kDotAbove);
}

/// Converts characters to title case if `is_first` is true for the previous character, and all others to lower case.
template <typename IsFirst>
std::string with_capitals(std::string_view text, IsFirst is_first) {
  std::string out;
  char32_t before = 0;
  for (size_t i = 0, next = 0; i < text.size(); i = next) {
    const char32_t c = character_at(text, i, next);
    if (is_first(i, before)) {
      append_upper(out, c, true);
    } else {
      append_lower(out, text, i, next, c);
    }
    before = c;
  }
  return out;
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_upper(out, character_at(text, i, i), false);
  return out;
}

std::string lower_case(std::string_view text) {
  return with_capitals(text, [](size_t, char32_t) { return false; });
}

std::string title_case(std::string_view text) {
  return with_capitals(text, [](size_t, char32_t before) { return !is_cased(before); });
}

std::string capitalized(std::string_view text) {
  return with_capitals(text, [](size_t at, char32_t) { return at == 0; });
}

bool is_lower(char32_t c) {
  static const uint32_t lower = categories_named("Ll");
  return is_in(lower, c) != is_among(kLowerExceptions, kLowerExceptionCount, c);
}

bool is_upper(char32_t c) {
  static const uint32_t upper = categories_named("Lu");
  return is_in(upper, c) != is_among(kUpperExceptions, kUpperExceptionCount, c);
}

bool is_title(char32_t c) {
  static const uint32_t title = categories_named("Lt");
  return is_in(title, c);
}

bool is_letter(char32_t c) {
  static const uint32_t letters = categories_named("L");
  return is_in(letters, c);
}

bool is_digit(char32_t c) {
  static const uint32_t digits = categories_named("Nd");
  return is_in(digits, c) != is_among(kDigitExceptions, kDigitExceptionCount, c);
}

bool is_numeral(char32_t c) {
  static const uint32_t numerals = categories_named("N");
  return is_in(numerals, c) != is_among(kNumeralExceptions, kNumeralExceptionCount, c);
}

}  // namespace mft
