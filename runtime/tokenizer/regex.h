#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// A text as characters, which is how patterns see it.
struct Characters {
  explicit Characters(std::string_view text);

  std::vector<char32_t> at;
  std::vector<uint32_t> begin;  // byte of each, and the text's end
};

/// A regular expression as tokenizers use them to split text into words: alternatives, groups `(?:)` and `(?i:)`,
/// lookahead, classes with \p{..}, \s, \d, \w, and `? * + {m,n}` of single characters and `?` of groups. Matches what
/// Oniguruma matches, the engine of Hugging Face tokenizers; without case, ASCII letters are all that it knows.
class Regex {
 public:
  /// Throws Error where the pattern needs more than that, or matches nothing at some place.
  explicit Regex(std::string_view pattern);
  /// Matches this very text.
  static Regex literal(std::string_view text);
  Regex(Regex&&) noexcept;
  ~Regex();

  struct Match {
    size_t begin, end;  // characters
  };
  /// All matches from left to right, none of them empty. Throws Error where matching takes too many steps.
  std::vector<Match> find_all(const Characters& text) const;

  struct Node;

 private:
  Regex();

  std::unique_ptr<Node> root_;
  std::vector<char32_t> literal_;  // where there is no root
};

}  // namespace mft
