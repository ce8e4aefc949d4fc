#include "runtime/tokenizer/normalizer.h"

#include <algorithm>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

struct Character {
  char32_t c;
  Span from;
  uint8_t combining_class;
};

void decompose(char32_t c, Span from, std::vector<Character>& out) {
  const std::optional<Decomposition> parts = decomposition_of(c);
  if (!parts) return out.push_back({c, from, combining_class(c)});
  decompose(parts->first, from, out);
  if (parts->second != 0) decompose(parts->second, from, out);
}

/// Sorts runs of combining characters by class.
void order(std::vector<Character>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text.end(), [](const Character& x) { return x.combining_class == 0; });
    std::stable_sort(begin, end,
                     [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

/// Composes each character with the last starter before it, unless a character between them has the same or a higher
/// class.
std::vector<Character> compose(const std::vector<Character>& text) {
  std::vector<Character> out;
  size_t starter = SIZE_MAX;
  for (const Character& next : text) {
    if (starter != SIZE_MAX) {
      const bool adjacent = starter + 1 == out.size();
      const bool blocked = !adjacent && out.back().combining_class >= next.combining_class;
      const char32_t whole = blocked ? 0 : composed(out[starter].c, next.c);
      if (whole != 0) {
        out[starter].c = whole;
        out[starter].from.end = std::max(out[starter].from.end, next.from.end);
        continue;
      }
    }
    if (next.combining_class == 0) starter = out.size();
    out.push_back(next);
  }
  return out;
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void replace(SourceText& text, const Regex& pattern, const std::string& content) {
  const Characters characters(text.bytes);
  const std::vector<Regex::Match> matches = pattern.find_all(characters);
  if (matches.empty()) return;
  SourceText out;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    const size_t begin = characters.begin[match.begin], end = characters.begin[match.end];
    out.add(text, done, begin);
    out.add(content, text.source(begin, end));
    done = end;
  }
  out.add(text, done, text.bytes.size());
  text = std::move(out);
}

void strip(SourceText& text, bool left, bool right) {
  const size_t begin = left ? skip(text.bytes, 0, is_space) : 0;
  const size_t end = right ? std::max(begin, skip_back(text.bytes, text.bytes.size(), is_space)) : text.bytes.size();
  text = text.part(begin, end);
}

/// Unicode's normal form C.
void to_nfc(SourceText& text) {
  if (is_ascii(text.bytes)) return;
  std::vector<Character> characters;
  for (size_t i = 0, end; i < text.bytes.size(); i = end) {
    const char32_t c = character_at(text.bytes, i, end);
    decompose(c, text.source(i, end), characters);
  }
  order(characters);
  SourceText out;
  for (const Character& character : compose(characters)) {
    std::string bytes;
    append_utf8(bytes, character.c);
    out.add(bytes, character.from);
  }
  text = std::move(out);
}

}  // namespace

Normalizer make_normalizer(const nlohmann::json& json) {
  if (json.is_null()) return [](SourceText&) {};
  const std::string type = json.at("type");
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    for (const auto& step : json.at("normalizers")) steps.push_back(make_normalizer(step));
    return [steps](SourceText& text) {
      for (const Normalizer& step : steps) step(text);
    };
  }
  if (type == "NFC") return to_nfc;
  if (type == "Replace") {
    const auto pattern = std::make_shared<Regex>(pattern_of(json.at("pattern")));
    const std::string content = json.at("content");
    return [pattern, content](SourceText& text) { replace(text, *pattern, content); };
  }
  if (type == "Prepend") {
    const std::string prepended = json.at("prepend");
    return [prepended](SourceText& text) {
      if (!text.bytes.empty()) text.prepend(prepended);
    };
  }
  if (type == "Strip") {
    const bool left = json.at("strip_left"), right = json.at("strip_right");
    return [left, right](SourceText& text) { strip(text, left, right); };
  }
  fail("its normalizer ", type, " is not supported");
}

}  // namespace mft
