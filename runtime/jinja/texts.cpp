#include "runtime/jinja/texts.h"

#include <algorithm>

namespace mft::jinja {
namespace {

constexpr size_t kBytesAtOnce = 16;  // bytes compared in the time of a unit

}  // namespace

size_t found_in(std::string_view text, std::string_view wanted, size_t from, Memory& memory) {
  if (wanted.empty() || from > text.size()) return from > text.size() ? text.npos : from;
  for (size_t at = from; at + wanted.size() <= text.size(); ++at) {
    const size_t first = text.find(wanted[0], at);
    memory.spend((std::min(first, text.size()) - at) / kBytesAtOnce + wanted.size() / kBytesAtOnce + 1);
    if (first == text.npos || first + wanted.size() > text.size()) break;
    if (text.compare(first, wanted.size(), wanted) == 0) return first;
    at = first;
  }
  return text.npos;
}

size_t found_before(std::string_view text, std::string_view wanted, size_t end, Memory& memory) {
  if (wanted.size() > end) return text.npos;
  for (size_t at = end - wanted.size() + 1; at-- > 0;) {
    memory.spend(kStepPrice);
    if (!wanted.empty() && text[at] != wanted[0]) continue;
    memory.spend(wanted.size() / kBytesAtOnce);
    if (text.compare(at, wanted.size(), wanted) == 0) return at;
  }
  return text.npos;
}

std::string stripped(const std::string& text, const std::string* characters, Ends ends, Memory& memory) {
  memory.spend(text.size() * (characters == nullptr ? 1 : 1 + characters->size()));
  const auto goes = [&](char32_t c) {
    if (characters == nullptr) return is_python_space(c);
    for (size_t i = 0; i < characters->size();) {
      if (character_at(*characters, i, i) == c) return true;
    }
    return false;
  };
  const size_t begin = ends == Ends::kRight ? 0 : skip(text, 0, goes);
  const size_t end = ends == Ends::kLeft ? text.size() : skip_back(text, text.size(), goes);
  return text.substr(begin, std::max(begin, end) - begin);
}

std::string replaced(const std::string& text, const std::string& old, const std::string& with, int64_t most,
                     Memory& memory) {
  memory.spend(kCallPrice + 2 * static_cast<int64_t>(text.size()));
  std::string out;
  size_t at = 0;
  if (old.empty()) {  // between all characters
    while (most != 0 && at <= text.size()) {
      memory.spend(1 + with.size());
      out += with;
      if (at == text.size()) return out;
      size_t next = at;
      character_at(text, at, next);
      out.append(text, at, next - at);
      at = next;
      --most;
    }
    return out.append(text, at, text.npos);
  }
  for (; most != 0; --most) {
    const size_t found = found_in(text, old, at, memory);
    if (found == text.npos) break;
    memory.spend(1 + with.size());
    out.append(text, at, found - at);
    out += with;
    at = found + old.size();
  }
  return out.append(text, at, text.npos);
}

std::string cased(const std::string& text, std::string (*how)(std::string_view), Memory& memory) {
  memory.spend(kCasePrice * text.size());
  return how(text);
}

std::string joined(const std::string& between, const std::vector<Value>& items, Memory& memory) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string text = to_text(items[i], memory);
    memory.spend(kStepPrice + static_cast<int64_t>(text.size() + between.size()));
    if (i > 0) out += between;
    out += text;
  }
  return out;
}

}  // namespace mft::jinja
