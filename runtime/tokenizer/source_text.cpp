#include "runtime/tokenizer/source_text.h"

#include "runtime/base/error.h"
#include "runtime/unicode/unicode.h"

namespace mft {

void check_text_bytes(size_t bytes) {
  if (bytes > kMostTextBytes) fail("the tokenizer expands the text to more than ", kMostTextBytes, " bytes");
}

SourceText SourceText::of(std::string_view text, uint32_t begin) {
  SourceText made;
  made.bytes = text;
  made.from.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t end;
    character_at(text, i, end);
    const Span whole = {begin + static_cast<uint32_t>(i), begin + static_cast<uint32_t>(end)};
    made.from.insert(made.from.end(), end - i, whole);
    i = end;
  }
  return made;
}

SourceText SourceText::part(size_t begin, size_t end) const {
  SourceText made;
  made.add(*this, begin, end);
  return made;
}

void SourceText::add(std::string_view text, Span source) {
  check_text_bytes(bytes.size() + text.size());
  bytes += text;
  from.insert(from.end(), text.size(), source);
}

void SourceText::add(const SourceText& other, size_t begin, size_t end) {
  bytes.append(other.bytes, begin, end - begin);
  from.insert(from.end(), other.from.begin() + static_cast<ptrdiff_t>(begin),
              other.from.begin() + static_cast<ptrdiff_t>(end));
}

void SourceText::prepend(std::string_view text) {
  check_text_bytes(bytes.size() + text.size());
  const Span first = from.empty() ? Span{0, 0} : from.front();
  bytes.insert(0, text);
  from.insert(from.begin(), text.size(), first);
}

}  // namespace mft
