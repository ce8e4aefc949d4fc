#include "runtime/text/added_tokens.h"

#include <algorithm>
#include <set>

#include "runtime/core/error.h"
#include "runtime/core/json.h"
#include "runtime/text/unicode.h"

namespace mft {
namespace {

constexpr int64_t kMostId = (1 << 24) - 1;

bool word_before(const std::string& text, size_t at) {
  size_t end;
  return at > 0 && is_word(character_at(text, character_before(text, at), end));
}

bool word_at(const std::string& text, size_t at) {
  size_t end;
  return at < text.size() && is_word(character_at(text, at, end));
}

size_t before_spaces(const std::string& text, size_t at) {
  for (size_t end; at > 0 && is_space(character_at(text, character_before(text, at), end));) {
    at = character_before(text, at);
  }
  return at;
}

size_t behind_spaces(const std::string& text, size_t at) {
  for (size_t end; at < text.size() && is_space(character_at(text, at, end));) at = end;
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& json, const Normalizer& normalizer) {
  tokens_.reserve(json.size());  // pointers to them stay
  for (const auto& entry : json) {
    Token token;
    token.content = entry.at("content");
    if (token.content.empty()) continue;
    token.id = integer(entry, "id", 0, kMostId);
    token.single_word = entry.at("single_word");
    token.left = entry.at("lstrip");
    token.right = entry.at("rstrip");
    token.normalized = entry.at("normalized");
    token.special = entry.at("special");
    token.matched = token.content;
    if (token.normalized) {
      SourceText text = SourceText::of(token.content, 0);
      normalizer(text);
      token.matched = text.bytes;
    }
    tokens_.push_back(std::move(token));
    const Token& kept = tokens_.back();
    by_id_[kept.id] = &kept;
    if (kept.special) special_.insert(kept.content);
    if (!kept.matched.empty()) by_match_[kept.normalized][kept.matched] = &kept;
  }
  for (const int normalized : {0, 1}) {
    std::set<size_t> lengths;
    for (const auto& [text, token] : by_match_[normalized]) {
      lengths.insert(text.size());
      begins_[normalized][static_cast<unsigned char>(text[0])] = true;
    }
    lengths_[normalized].assign(lengths.rbegin(), lengths.rend());
  }
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
    if (begins_[normalized][static_cast<unsigned char>(text[at])]) {
      for (const size_t length : lengths_[normalized]) {
        if (length > text.size() - at) continue;
        const auto found = by_match_[normalized].find(text.substr(at, length));
        if (found == by_match_[normalized].end()) continue;
        token = found->second;
        break;
      }
    }
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->matched.size();
    at = end;
    if (token->single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token->left) begin = std::max(before_spaces(text, begin), done);
    if (token->right) end = behind_spaces(text, end);
    all.push_back({token, begin, end});
    done = end;
    at = std::max(at, end);
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
