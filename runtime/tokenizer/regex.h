#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// A text as a sequence of characters, for matching.
struct Characters {
  explicit Characters(std::string_view text);

  std::vector<char32_t> at;
  std::vector<uint32_t> begin;  // first byte of each, and the text's end
};

/// The regular expressions with which tokenizers split text into words: alternatives, groups `(?:)` and `(?i:)`,
/// lookahead, classes with \p{..}, \s, \d, \w, and `? * + {m,n}` of single characters and `?` of groups. Matches are
/// the same as in Oniguruma, the engine of Hugging Face's tokenizers. Case-insensitive matching supports only ASCII
/// letters.
class Regex {
 public:
  /// Throws Error if the pattern uses other features, or can match the empty text.
  explicit Regex(std::string_view pattern);
  /// Returns an expression that matches exactly this text.
  static Regex literal(std::string_view text);
  Regex(Regex&&) noexcept;
  ~Regex();

  struct Match {
    size_t begin, end;  // characters
  };
  /// Returns all matches from left to right. None is empty. Throws Error if matching takes too many steps.
  std::vector<Match> find_all(const Characters& text) const;

  struct Node;

 private:
  Regex();

  std::unique_ptr<Node> root_;
  std::vector<char32_t> literal_;  // used if there is no root
};

}  // namespace mft
