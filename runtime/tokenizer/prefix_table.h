#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// Texts with a value each, found by all that a longer text begins with.
class PrefixTable {
 public:
  void add(std::string_view text, int64_t value) { entries_.push_back({std::string(text), value}); }
  /// Once, when all are added; of equal texts the last counts.
  void sort() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  }
  bool empty() const { return entries_.empty(); }

  /// Calls `found(length, value)` for every text that `text` begins with, the shortest first.
  template <typename Found>
  void find(std::string_view text, const Found& found) const {
    auto begin = entries_.begin(), end = entries_.end();  // of those that agree so far
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
  std::vector<Entry> entries_;  // by text
};

}  // namespace mft
