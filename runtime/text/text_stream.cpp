#include "runtime/text/text_stream.h"

namespace mft {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string without_nul(std::string text) {
  for (size_t at; (at = text.find('\0')) != std::string::npos;) text.replace(at, 1, kReplacement);
  return text;
}

}  // namespace

std::string TextStream::add(int64_t token) {
  pending_.push_back(token);
  const std::string text = pending_text();
  if (text.empty() || ends_with(text, kReplacement)) return "";  // the last bytes of a character are missing
  shown_ = std::move(pending_);
  pending_.clear();
  return without_nul(text);
}

std::string TextStream::finish() const { return without_nul(pending_text()); }

std::string TextStream::pending_text() const {
  std::vector<int64_t> all = shown_;
  all.insert(all.end(), pending_.begin(), pending_.end());
  const std::string before = tokenizer_.decode(shown_, true), text = tokenizer_.decode(all, true);
  if (text.compare(0, before.size(), before) == 0) return text.substr(before.size());
  // A run of byte tokens that is not UTF-8 is replaced as a whole, including the bytes that were shown.
  return tokenizer_.decode(pending_, true);
}

}  // namespace mft
