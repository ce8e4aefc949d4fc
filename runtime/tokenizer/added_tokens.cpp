#include "runtime/tokenizer/added_tokens.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

/// The definition in Rust's regular expressions.
bool joins_words(char32_t c) { return is_word(c) || c == 0x200c || c == 0x200d; }

bool word_before(const std::string& text, size_t at) {
  size_t end;
  return at > 0 && joins_words(character_at(text, character_before(text, at), end));
}

bool word_at(const std::string& text, size_t at) {
  size_t end;
  return at < text.size() && joins_words(character_at(text, at, end));
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const Vocabulary& vocabulary) {
  tokens_.reserve(json.size());  // so that pointers to elements stay valid
  auto next_id = static_cast<int64_t>(vocabulary.count());
  std::unordered_set<std::string> contents;
  size_t bytes = 0;
  for (const auto& entry : json) {
    const std::string content = entry.at("content");
    if (content.empty()) continue;
    const int64_t known = vocabulary.find(content), id = known >= 0 ? known : next_id++;
    const int64_t given = integer(entry, "id", 0, INT32_MAX);
    if (given != id) fail("its added token ", content, " has id ", given, "; it must be ", id);
    if (!contents.insert(content).second) fail("its added token ", content, " is duplicated");
    Token token = {content, id, entry.at("single_word"), entry.at("lstrip"), entry.at("rstrip")};
    const bool normalized = entry.at("normalized");
    if (normalized) {
      SourceText text = SourceText::of(content, 0);
      normalizer(text);
      token.matched = text.bytes;
    }
    check_text_bytes(bytes += token.matched.size());
    if (!token.matched.empty()) by_match_[normalized].add(token.matched, static_cast<int64_t>(tokens_.size()));
    if (entry.at("special")) special_.insert(content);
    tokens_.push_back(std::move(token));
    by_id_[id] = &tokens_.back();
  }
  for (PrefixTable& table : by_match_) table.sort();
}

const std::string* AddedTokens::text(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->matched;
}

std::vector<AddedTokens::Found> AddedTokens::find_all(const std::string& text, bool normalized) const {
  std::vector<Found> all;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Token* token = nullptr;
    by_match_[normalized].find(std::string_view(text).substr(at), [&](size_t, int64_t index) {
      token = &tokens_[static_cast<size_t>(index)];  // the longest match is last
    });
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->matched.size();
    at = end;
    if (token->single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token->left) begin = std::max(skip_back(text, begin, is_space), done);
    if (token->right) end = skip(text, end, is_space);
    if (begin >= end) continue;  // overlaps the previous token
    all.push_back({token, begin, end});
    done = end;
  }
  return all;
}

void AddedTokens::split(Pieces& pieces, bool normalized) const {
  if (by_match_[normalized].empty()) return;
  Pieces out;
  for (Piece& piece : pieces) {
    const std::string& text = piece.text.bytes;
    const std::vector<Found> all = piece.token < 0 ? find_all(text, normalized) : std::vector<Found>();
    if (all.empty()) {
      out.push_back(std::move(piece));
      continue;
    }
    size_t done = 0;
    for (const Found& found : all) {
      if (done < found.begin) out.push_back({piece.text.part(done, found.begin)});
      out.push_back({piece.text.part(found.begin, found.end), found.token->id});
      done = found.end;
    }
    if (done < text.size()) out.push_back({piece.text.part(done, text.size())});
  }
  pieces = std::move(out);
}

}  // namespace mft
