#include "runtime/text/text_stream.h"

namespace mft {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string TextStream::add(int64_t token) {
  pending_.push_back(token);
  std::string text = finish();
  if (text.empty() || ends_with(text, kReplacement)) return "";  // the last bytes of a character are missing
  shown_ = std::move(pending_);
  pending_.clear();
  return text;
}

std::string TextStream::finish() const {
  std::vector<int64_t> all = shown_;
  all.insert(all.end(), pending_.begin(), pending_.end());
  const std::string before = tokenizer_.decode(shown_, true), text = tokenizer_.decode(all, true);
  if (text.compare(0, before.size(), before) == 0) return text.substr(before.size());
  // A run of byte tokens that is not UTF-8 is replaced as a whole, including the bytes that were shown.
  return tokenizer_.decode(pending_, true);
}

}  // namespace mft
