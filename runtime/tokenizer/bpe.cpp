#include <algorithm>
#include <queue>

#include "runtime/base/error.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

struct Merge {
  uint32_t rank, id;
};

/// Merges by their pair of tokens.
class Merges {
 public:
  void reserve(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.assign(slots, {kNone, {0, 0}});
  }
  /// Of two merges of the same pair, the later counts, as in Hugging Face's library.
  void add(int64_t left, int64_t right, Merge merge) { slots_[slot(key(left, right))] = {key(left, right), merge}; }
  const Merge* find(int64_t left, int64_t right) const {
    const Slot& found = slots_[slot(key(left, right))];
    return found.key == kNone ? nullptr : &found.merge;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr size_t kMostSteps = 1000;  // a half-full table does not need as many by chance
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static uint64_t key(int64_t left, int64_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
  }
  size_t slot(uint64_t key) const {
    size_t at = (key * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
    for (size_t steps = 0; slots_[at].key != kNone && slots_[at].key != key; ++steps) {
      if (steps > kMostSteps)
        fail("its merges collide too often in the hash table; the file is not a normal tokenizer");
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
};

/// A part of a word. A part that was merged into its left neighbour has length 0.
struct Symbol {
  int64_t id;
  size_t length;
  int64_t before, after;  // indices, or -1 if there is none
};

struct Candidate {
  uint32_t rank, id;
  size_t at;
  bool operator<(const Candidate& other) const {  // lowest rank first, then leftmost
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class Bpe : public TokenModel {
 public:
  explicit Bpe(ModelFile file) : TokenModel(std::move(file.vocabulary)) {
    const nlohmann::json& options = file.options;
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (options.contains(name) && !options[name].is_null() && options[name] != "") {
        fail("its model's ", name, " is not supported");
      }
    }
    const auto flag = [&](const char* name) { return options.contains(name) && options[name] == true; };
    whole_words_ = flag("ignore_merges");
    fuse_unknown_ = flag("fuse_unk");
    if (flag("byte_fallback")) bytes_ = byte_tokens();
    if (options.contains("unk_token") && options["unk_token"].is_string()) {
      unknown_token_ = options["unk_token"];
      has_unknown_ = true;
      unknown_ = vocabulary_.find(unknown_token_);
    }
    merges_.reserve(file.merges.size());
    std::string whole;
    for (size_t rank = 0; rank < file.merges.size(); ++rank) {
      const auto& [left, right] = file.merges[rank];
      whole = left + right;
      merges_.add(token(left), token(right), {static_cast<uint32_t>(rank), static_cast<uint32_t>(token(whole))});
    }
  }

  void encode(std::string_view word, std::vector<WordToken>& tokens) const override {
    if (whole_words_) {
      const int64_t id = vocabulary_.find(word);
      if (id >= 0) return tokens.push_back({id, word.size()});
    }
    std::vector<Symbol> symbols = characters(word);
    merge(symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.length != 0) tokens.push_back({symbol.id, symbol.length});
    }
  }

 private:
  int64_t token(const std::string& text) const {
    const int64_t id = vocabulary_.find(text);
    if (id < 0) fail("its merges produce ", text, ", which is not in the vocabulary");
    return id;
  }

  std::vector<Symbol> characters(std::string_view word) const {
    std::vector<Symbol> symbols;
    const auto add = [&](int64_t id, size_t length) {
      const auto index = static_cast<int64_t>(symbols.size());
      if (index > 0) symbols.back().after = index;
      symbols.push_back({id, length, index - 1, -1});
    };
    size_t unknown = 0;  // bytes of unknown characters before the next token
    for (size_t at = 0, end; at < word.size(); at = end) {
      character_at(word, at, end);
      const int64_t id = vocabulary_.find(word.substr(at, end - at));
      if (id >= 0) {
        if (unknown > 0) add(unknown_, unknown);
        unknown = 0;
        add(id, end - at);
      } else if (has_bytes(word, at, end)) {
        for (size_t i = at; i < end; ++i) add(bytes_[static_cast<unsigned char>(word[i])], 1);
      } else if (has_unknown_) {
        if (unknown_ < 0) fail("the tokenizer's unknown token ", unknown_token_, " is not in its vocabulary");
        if (unknown > 0 && !fuse_unknown_) {
          add(unknown_, unknown);
          unknown = 0;
        }
        unknown += end - at;
      }
    }
    if (unknown > 0) add(unknown_, unknown);
    return symbols;
  }

  bool has_bytes(std::string_view word, size_t begin, size_t end) const {
    if (bytes_.empty()) return false;
    return std::all_of(word.begin() + static_cast<ptrdiff_t>(begin), word.begin() + static_cast<ptrdiff_t>(end),
                       [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; });
  }

  void merge(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> queue;
    const auto consider = [&](int64_t left, int64_t right) {
      if (left < 0 || right < 0) return;
      const auto at = static_cast<size_t>(left);
      const Merge* found = merges_.find(symbols[at].id, symbols[static_cast<size_t>(right)].id);
      if (found != nullptr) queue.push({found->rank, found->id, at});
    };
    for (size_t i = 1; i < symbols.size(); ++i) consider(static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[best.at];
      if (left.length == 0 || left.after < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.after)];
      const Merge* found = merges_.find(left.id, right.id);
      if (found == nullptr || found->id != best.id) continue;  // one of the two parts has changed
      left.id = best.id;
      left.length += right.length;
      left.after = right.after;
      right.length = 0;
      if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = static_cast<int64_t>(best.at);
      consider(left.before, static_cast<int64_t>(best.at));
      consider(static_cast<int64_t>(best.at), left.after);
    }
  }

  Merges merges_;
  bool whole_words_, fuse_unknown_, has_unknown_ = false;
  std::string unknown_token_;
  int64_t unknown_ = -1;
  std::vector<int64_t> bytes_;  // empty if there are no byte tokens
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(ModelFile file) { return std::make_unique<Bpe>(std::move(file)); }

}  // namespace mft
