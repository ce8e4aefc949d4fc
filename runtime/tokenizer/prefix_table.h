#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// Texts with values. Finds all texts that are prefixes of a longer text.
class PrefixTable {
 public:
  void add(std::string_view text, int64_t value) { entries_.push_back({std::string(text), value}); }
  /// Call it once, after all texts are added. Of equal texts, the last counts.
  void sort() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  }
  bool empty() const { return entries_.empty(); }

  /// Calls `found(length, value)` for every text that is a prefix of `text`, shortest first.
  template <typename Found>
  void find(std::string_view text, const Found& found) const {
    auto begin = entries_.begin(), end = entries_.end();  // range of entries that match so far
    for (size_t length = 0; begin != end; ++length) {
      while (begin != end && begin->text.size() == length) {
        const auto next = begin + 1;
        if (next == end || next->text.size() != length) found(length, begin->value);
        begin = next;
      }
      if (length == text.size()) return;
      const auto byte = [length](const Entry& entry) { return static_cast<unsigned char>(entry.text[length]); };
      const auto wanted = static_cast<unsigned char>(text[length]);
      begin = std::lower_bound(begin, end, wanted, [&](const Entry& entry, int x) { return byte(entry) < x; });
      end = std::upper_bound(begin, end, wanted, [&](int x, const Entry& entry) { return x < byte(entry); });
    }
  }

 private:
  struct Entry {
    std::string text;
    int64_t value;
  };
  std::vector<Entry> entries_;  // sorted by text
};

}  // namespace mft
