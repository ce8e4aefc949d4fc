#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// Bytes [begin, end) of the original text.
struct Span {
  uint32_t begin, end;
};

/// The maximum size of a normalized text, and of an original text.
constexpr size_t kMostTextBytes = size_t{1} << 23, kMostGivenBytes = kMostTextBytes / 2;
/// Throws Error above kMostTextBytes, because a damaged tokenizer may double a text repeatedly.
void check_text_bytes(size_t bytes);

/// A modified text, and the origin of each of its bytes. Both texts are UTF-8. Methods that add text throw Error if it
/// would become too long.
struct SourceText {
  std::string bytes;
  std::vector<Span> from;  // origin of each byte

  static SourceText of(std::string_view text, uint32_t begin);
  SourceText part(size_t begin, size_t end) const;
  /// The origin of the bytes [begin, end), which must not be empty.
  Span source(size_t begin, size_t end) const { return {from[begin].begin, from[end - 1].end}; }
  void add(std::string_view text, Span source);
  void add(const SourceText& other, size_t begin, size_t end);
  /// Prepends a text with the origin of the first character.
  void prepend(std::string_view text);
};

/// A part of a text during tokenization: a word, or a matched token.
struct Piece {
  SourceText text;
  int64_t token = -1;
};
using Pieces = std::vector<Piece>;

}  // namespace mft
