#include "runtime/unicode/unicode.h"

#include <algorithm>
#include <map>

#include "runtime/unicode/unicode_tables.h"

namespace mft {
namespace {

/// Names of the categories, in the order of unicode_tables.cpp.
constexpr const char* kNames[] = {"Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu",
                                  "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf",
                                  "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

constexpr char32_t kReplacement = 0xfffd;

/// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
constexpr char32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

/// The length of a character according to its first byte, or 0 if the byte is invalid.
size_t length_of(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/// Returns the number of bytes from `at` on that begin a character, and whether the character is complete.
size_t beginning(std::string_view text, size_t at, bool& whole) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = length_of(first);
  whole = length == 1;
  if (length < 2) return 1;
  for (size_t i = 1; i < length; ++i) {
    // The second byte excludes overlong forms, surrogates and values above U+10FFFF.
    const unsigned char least = i > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = i > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at + i >= text.size() || byte(at + i) < least || byte(at + i) > most) return i;
  }
  whole = true;
  return length;
}

}  // namespace

uint32_t categories_named(std::string_view name) {
  uint32_t found = 0;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (!name.empty() && std::string_view(kNames[i]).substr(0, name.size()) == name) found |= uint32_t{1} << i;
  }
  return found;
}

bool is_in(uint32_t categories, char32_t c) {
  const uint32_t* end = kCategoryRuns + kCategoryRunCount;
  // A run is encoded as its first character times 32 plus its category.
  const uint32_t* run = std::upper_bound(kCategoryRuns, end, (static_cast<uint32_t>(c) << 5) | 31) - 1;
  return categories >> (*run & 31) & 1;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_numeric(char32_t c) {
  const CharacterRange* end = kNumeric + kNumericCount;
  const CharacterRange* range =
      std::upper_bound(kNumeric, end, c, [](char32_t x, const CharacterRange& r) { return x < r.first; });
  return range != kNumeric && c <= (range - 1)->last;
}

bool is_word(char32_t c) {
  static const uint32_t word = categories_named("L") | categories_named("M") | categories_named("Nd") |
                               categories_named("Nl") | categories_named("Pc");
  const bool circled = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                       (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  return circled || is_in(word, c);
}

char32_t character_at(std::string_view text, size_t at, size_t& end) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const size_t length = std::max<size_t>(1, length_of(byte(0)));
  end = at + length;
  char32_t c = length == 1 ? byte(0) : byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3f);
  return c;
}

size_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      add(0xe0 | c >> 12);
    } else {
      add(0xf0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3f));
    }
    add(0x80 | (c >> 6 & 0x3f));
  }
  add(0x80 | (c & 0x3f));
}

size_t invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    bool whole;
    const size_t length = beginning(text, at, whole);
    if (!whole) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    bool whole;
    const size_t length = beginning(bytes, at, whole);
    if (whole) {
      text += bytes.substr(at, length);
    } else {
      append_utf8(text, kReplacement);
    }
    at += length;
  }
  return text;
}

std::optional<Decomposition> decomposition_of(char32_t c) {
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t index = c - kSyllables, tail = index % kTailCount;
    if (tail != 0) return Decomposition{c - tail, kTails + tail};
    return Decomposition{kLeads + index / (kVowelCount * kTailCount),
                         kVowels + index % (kVowelCount * kTailCount) / kTailCount};
  }
  const DecompositionRow* end = kDecompositions + kDecompositionCount;
  const DecompositionRow* row =
      std::lower_bound(kDecompositions, end, c, [](const DecompositionRow& r, char32_t x) { return r.character < x; });
  if (row == end || row->character != c) return std::nullopt;
  return row->into;
}

char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
      second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  static const auto pairs = [] {
    std::map<std::pair<char32_t, char32_t>, char32_t> made;
    for (size_t i = 0; i < kDecompositionCount; ++i) {
      const DecompositionRow& row = kDecompositions[i];
      if (row.composes) made[{row.into.first, row.into.second}] = row.character;
    }
    return made;
  }();
  const auto found = pairs.find({first, second});
  return found == pairs.end() ? 0 : found->second;
}

uint8_t combining_class(char32_t c) {
  const ClassRun* end = kClassRuns + kClassRunCount;
  const ClassRun* run = std::upper_bound(kClassRuns, end, c, [](char32_t x, const ClassRun& r) { return x < r.begin; });
  if (run == kClassRuns) return 0;
  --run;
  return c < run->begin + run->length ? run->combining_class : 0;
}

}  // namespace mft
