#include "runtime/tokenizer/vocabulary.h"

#include "runtime/base/error.h"

namespace mft {
namespace {

constexpr int64_t kMostId = (1 << 24) - 1;  // limit of a table by id
constexpr size_t kMostBytes = size_t{1} << 30;

}  // namespace

void Vocabulary::add(std::string_view text, int64_t id) {
  if (id < 0 || id > kMostId) fail("its token ", text, " has id ", id, "; it must be from 0 to ", kMostId);
  if (texts_.size() + text.size() > kMostBytes) fail("its tokens take more than ", kMostBytes, " bytes");
  if (has(id)) fail("its id ", id, " belongs to both ", this->text(id), " and ", text);
  if (2 * (count_ + 1) > slots_.size()) grow();
  const size_t at = slot(text);
  if (slots_[at] != kNone) fail("its token ", text, " is duplicated");
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size())};
  texts_ += text;
  slots_[at] = static_cast<uint32_t>(id);
  ++count_;
}

int64_t Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const uint32_t id = slots_[slot(text)];
  return id == kNone ? -1 : static_cast<int64_t>(id);
}

/// Returns the slot of the text, or the free slot for it.
size_t Vocabulary::slot(std::string_view text) const {
  size_t at = std::hash<std::string_view>()(text) & (slots_.size() - 1);
  while (slots_[at] != kNone && this->text(slots_[at]) != text) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void Vocabulary::grow() {
  std::vector<uint32_t> before(std::max<size_t>(16, 2 * slots_.size()), kNone);
  before.swap(slots_);
  for (const uint32_t id : before) {
    if (id != kNone) slots_[slot(text(id))] = id;
  }
}

}  // namespace mft
