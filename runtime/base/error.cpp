#include "runtime/base/error.h"

#include <cstdint>

namespace mft {
namespace {

constexpr size_t kLongest = 1000;
// Bytes kept of longer text. The end is kept too, because errors say there what would be right.
constexpr size_t kBeginning = 700, kEnd = 250;

/// The length of the UTF-8 sequence at the beginning of `text`, or 0 if it is invalid or not printable.
size_t printable_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || size > text.size()) return 0;
  uint32_t code = first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = code < (size == 4 ? 0x10000u : size == 3 ? 0x800u : 0x80u);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  // Characters that begin a new line or change the direction of text.
  const bool control = code < 0xa0 || code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
                       (code >= 0x2066 && code <= 0x2069);
  return overlong || surrogate || control || code > 0x10ffff ? 0 : size;
}

}  // namespace

std::string one_line(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::string_view kCut = "...";
  if (text.size() > kLongest) {
    const std::string_view beginning = text.substr(0, kBeginning), end = text.substr(text.size() - kEnd);
    return one_line(std::string(beginning).append(" ... ").append(end));
  }
  std::string line;
  size_t keep = 0;  // bytes to keep if the line is too long
  for (size_t i = 0; i < text.size() && line.size() <= kLongest;) {
    if (line.size() <= kLongest - kCut.size()) keep = line.size();
    if (const size_t bytes = printable_bytes(text.substr(i)); bytes > 0) {
      line.append(text.substr(i, bytes));
      i += bytes;
      continue;
    }
    const uint8_t byte = static_cast<uint8_t>(text[i++]);
    line.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
  }
  if (line.size() > kLongest) line.replace(keep, std::string::npos, kCut);
  return line;
}

}  // namespace mft
