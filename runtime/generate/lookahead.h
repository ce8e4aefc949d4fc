#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mft {

/// Guesses how an answer goes on: as the text went on before, behind the same tokens (prompt lookup decoding). A
/// guessed token that is computed beside the one before it costs less than alone; it is wasted if the guess was wrong.
/// So there are as many guesses as pay, by how often they were right and by what they cost.
class Lookahead {
 public:
  /// After these tokens.
  explicit Lookahead(std::vector<int64_t> text) : text_(std::move(text)) {}

  /// The next token of the text.
  void add(int64_t token);
  /// The tokens after the text that are worth computing beside its last one, at most `most`.
  std::vector<int64_t> guesses(size_t most);
  /// Computing this many tokens together took so long.
  void took(size_t tokens, double seconds);

 private:
  void look_up();

  std::vector<int64_t> text_;
  size_t next_ = 0;         // place in the text of the token that is guessed next; 0: none
  double right_ = 0.3;      // share of right guesses
  double alone_ = 0;        // seconds of one token alone
  double more_cost_ = 0.3;  // of each token beside another one, relative to it alone
};

}  // namespace mft
