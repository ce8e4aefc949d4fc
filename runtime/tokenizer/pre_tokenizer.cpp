#include "runtime/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

using Json = nlohmann::json;

/// How the matches of a pattern are split off.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_of(const std::string& name) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  fail("its split behavior ", name, " is not supported");
}

struct Part {
  size_t begin, end;  // characters
  bool matched;
};

/// Returns the matches of the pattern and the parts between them, in order.
std::vector<Part> parts_of(const Characters& text, const std::vector<Regex::Match>& matches) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    if (done != match.begin) parts.push_back({done, match.begin, false});
    parts.push_back({match.begin, match.end, true});
    done = match.end;
  }
  if (done != text.at.size()) parts.push_back({done, text.at.size(), false});
  return parts;
}

/// Applies the behavior to the parts, in order.
std::vector<Part> merged(std::vector<Part> parts, Behavior behavior) {
  if (behavior == Behavior::kIsolated) return parts;
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> out;
  bool before = false;
  for (const Part& part : parts) {
    if (behavior == Behavior::kRemoved && part.matched) continue;
    const bool joins = behavior == Behavior::kContiguous ? part.matched == before : part.matched && !before;
    before = part.matched;
    if (!joins || out.empty()) {
      out.push_back(part);
    } else {
      out.back() = {std::min(out.back().begin, part.begin), std::max(out.back().end, part.end), false};
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

/// Replaces every piece that is not a token by the result of `split`.
template <typename Split>
void split_all(Pieces& pieces, const Split& split) {
  Pieces out;
  for (Piece& piece : pieces) {
    if (piece.token >= 0) {
      out.push_back(std::move(piece));
    } else {
      split(piece.text, out);
    }
  }
  pieces = std::move(out);
}

void add_parts(const SourceText& text, const Characters& characters, const std::vector<Part>& parts, Pieces& out) {
  for (const Part& part : parts) {
    out.push_back({text.part(characters.begin[part.begin], characters.begin[part.end])});
  }
}

PreTokenizer splitting(std::shared_ptr<const Regex> pattern, Behavior behavior, bool invert = false) {
  return [pattern, behavior, invert](Pieces& pieces) {
    split_all(pieces, [&](const SourceText& text, Pieces& out) {
      const Characters characters(text.bytes);
      std::vector<Part> parts = parts_of(characters, pattern->find_all(characters));
      if (invert) {
        for (Part& part : parts) part.matched = !part.matched;
      }
      add_parts(text, characters, merged(parts, behavior), out);
    });
  };
}

/// Splits by the characters for which `matched` is true.
PreTokenizer splitting_at(bool (*matched)(char32_t), Behavior behavior) {
  return [matched, behavior](Pieces& pieces) {
    split_all(pieces, [&](const SourceText& text, Pieces& out) {
      const Characters characters(text.bytes);
      std::vector<Regex::Match> matches;
      for (size_t i = 0; i < characters.at.size(); ++i) {
        if (matched(characters.at[i])) matches.push_back({i, i + 1});
      }
      add_parts(text, characters, merged(parts_of(characters, matches), behavior), out);
    });
  };
}

/// Maps each byte to a printable character.
void to_byte_characters(SourceText& text) {
  SourceText out;
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    std::string character;
    append_utf8(character, byte_character(static_cast<unsigned char>(text.bytes[i])));
    out.add(character, text.from[i]);
  }
  text = std::move(out);
}

PreTokenizer byte_level(const Json& json) {
  const bool add_space = json.at("add_prefix_space");
  const PreTokenizer split =
      json.value("use_regex", true)
          ? splitting(std::make_shared<const Regex>(
                          R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
                      Behavior::kIsolated)
          : PreTokenizer([](Pieces&) {});
  return [add_space, split](Pieces& pieces) {
    for (Piece& piece : pieces) {
      if (piece.token < 0 && add_space && piece.text.bytes.front() != ' ') piece.text.prepend(" ");
    }
    split(pieces);
    for (Piece& piece : pieces) {
      if (piece.token < 0) to_byte_characters(piece.text);
    }
  };
}

/// Replaces spaces by a visible character, which is also added before the first word.
PreTokenizer metaspace(const Json& json) {
  const std::string mark = metaspace_mark(json), scheme = metaspace_scheme(json);
  const PreTokenizer split =
      !json.contains("split") || json["split"].is_null() || json["split"] == true
          ? splitting(std::make_shared<const Regex>(Regex::literal(mark)), Behavior::kMergedWithNext)
          : PreTokenizer([](Pieces&) {});
  return [mark, scheme, split](Pieces& pieces) {
    for (Piece& piece : pieces) {
      if (piece.token >= 0) continue;
      SourceText marked;
      for (size_t i = 0; i < piece.text.bytes.size(); ++i) {
        const char byte = piece.text.bytes[i];
        marked.add(byte == ' ' ? std::string_view(mark) : std::string_view(&byte, 1), piece.text.from[i]);
      }
      const bool first = !marked.from.empty() && marked.from.front().begin == 0;
      if (scheme != "never" && (scheme == "always" || first) && marked.bytes.compare(0, mark.size(), mark) != 0) {
        marked.prepend(mark);
      }
      piece.text = std::move(marked);
    }
    split(pieces);
  };
}

std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> all;
  char32_t next = 256;
  for (char32_t b = 0; b < 256; ++b) {
    const bool shown = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    all[b] = shown ? b : next++;
  }
  return all;
}

}  // namespace

std::string metaspace_mark(const Json& json) {
  const std::string mark = json.at("replacement");
  if (Characters(mark).at.size() != 1) fail("its replacement of spaces is ", mark, "; it must be one character");
  return mark;
}

std::string metaspace_scheme(const Json& json) {
  const std::string scheme = json.value("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fail("its prepend scheme ", scheme, " is not supported");
  return json.contains("add_prefix_space") && json["add_prefix_space"] == false ? "never" : scheme;
}

char32_t byte_character(unsigned char byte) {
  static const std::array<char32_t, 256> characters = byte_characters();
  return characters[byte];
}

int character_byte(char32_t c) {
  static const auto bytes = [] {
    std::array<int, 512> made;
    made.fill(-1);
    for (int b = 0; b < 256; ++b) made[byte_character(static_cast<unsigned char>(b))] = b;
    return made;
  }();
  return c < bytes.size() ? bytes[c] : -1;
}

PreTokenizer make_pre_tokenizer(const Json& json) {
  if (json.is_null()) return [](Pieces&) {};
  const std::string type = json.at("type");
  if (type == "Sequence") {
    std::vector<PreTokenizer> steps;
    for (const Json& step : json.at("pretokenizers")) steps.push_back(make_pre_tokenizer(step));
    return [steps](Pieces& pieces) {
      for (const PreTokenizer& step : steps) step(pieces);
    };
  }
  if (type == "ByteLevel") return byte_level(json);
  if (type == "Split") {
    return splitting(std::make_shared<const Regex>(pattern_of(json.at("pattern"))), behavior_of(json.at("behavior")),
                     json.at("invert"));
  }
  if (type == "Digits") {
    return splitting_at(is_numeric, json.at("individual_digits") ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Metaspace") return metaspace(json);
  fail("its pre-tokenizer ", type, " is not supported");
}

}  // namespace mft
