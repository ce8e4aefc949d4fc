#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// Bytes [begin, end) of the text that was given.
struct Span {
  uint32_t begin, end;
};

/// The longest text that a tokenizer may make of the one that it is given, and the longest of these.
constexpr size_t kMostTextBytes = size_t{1} << 23, kMostGivenBytes = kMostTextBytes / 2;
/// Throws Error above kMostTextBytes: a damaged tokenizer may double a text again and again.
void check_text_bytes(size_t bytes);

/// A text that was changed, and where each of its bytes came from. UTF-8, as is what it came from. What adds to it
/// throws Error where it would become too long.
struct SourceText {
  std::string bytes;
  std::vector<Span> from;  // of each byte

  static SourceText of(std::string_view text, uint32_t begin);
  SourceText part(size_t begin, size_t end) const;
  /// Of the bytes [begin, end), which are not none.
  Span source(size_t begin, size_t end) const { return {from[begin].begin, from[end - 1].end}; }
  void add(std::string_view text, Span source);
  void add(const SourceText& other, size_t begin, size_t end);
  /// Puts a text in front, as a part of the first character.
  void prepend(std::string_view text);
};

/// A part of a text on its way to tokens: a word, or a token that was found as it is.
struct Piece {
  SourceText text;
  int64_t token = -1;
};
using Pieces = std::vector<Piece>;

}  // namespace mft
