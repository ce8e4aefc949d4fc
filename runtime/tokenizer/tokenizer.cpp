#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/unicode/unicode.h"

namespace mft {

Tokenizer::Tokenizer(const std::string& path) {
  const std::string text = read_text(path, kMostJsonBytes);
  try {
    TokenizerFile file = parse_tokenizer_file(text);
    const nlohmann::json& parts = file.parts;
    normalizer_ = make_normalizer(parts.value("normalizer", nlohmann::json()));
    pre_tokenizer_ = make_pre_tokenizer(parts.value("pre_tokenizer", nlohmann::json()));
    decoder_ = make_token_decoder(parts.value("decoder", nlohmann::json()));
    model_ = file.type == "BPE" ? make_bpe(std::move(file.model)) : make_unigram(std::move(file.model));
    added_ = std::make_unique<AddedTokens>(parts.value("added_tokens", nlohmann::json::array()), normalizer_,
                                           model_->vocabulary());
  } catch (const nlohmann::json::exception& error) {
    fail(path, ": not a tokenizer.json: ", error.what());
  } catch (const Error& error) {
    fail(path, ": ", error.what());
  }
}

std::vector<TextToken> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMostGivenBytes) {
    fail("the text has ", text.size(), " bytes; at most ", kMostGivenBytes, " are supported at once");
  }
  const size_t invalid = invalid_utf8(text);
  if (invalid != std::string_view::npos) fail("the text is not valid UTF-8 at byte ", invalid);
  Pieces pieces;
  if (!text.empty()) pieces.push_back({SourceText::of(text, 0)});
  added_->split(pieces, false);
  size_t bytes = 0;
  for (Piece& piece : pieces) {
    if (piece.token < 0) normalizer_(piece.text);
    bytes += piece.text.bytes.size();
    check_text_bytes(bytes);
  }
  added_->split(pieces, true);
  const auto empty = [](const Piece& piece) { return piece.text.bytes.empty(); };  // removed by normalization
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(), empty), pieces.end());
  pre_tokenizer_(pieces);

  std::vector<TextToken> tokens;
  std::vector<WordToken> word;
  for (const Piece& piece : pieces) {
    if (piece.token >= 0) {
      tokens.push_back({piece.token, piece.text.source(0, piece.text.bytes.size())});
      continue;
    }
    word.clear();
    model_->encode(piece.text.bytes, word);
    size_t begin = 0;
    for (const WordToken& token : word) {
      tokens.push_back({token.id, piece.text.source(begin, begin + token.length)});
      begin += token.length;
    }
  }
  return tokens;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  std::vector<std::string> texts;
  const Vocabulary& vocabulary = model_->vocabulary();
  size_t bytes = 0;
  for (const int64_t id : ids) {
    const std::string* added = added_->text(id);
    if (added == nullptr && !vocabulary.has(id)) continue;
    std::string text = added != nullptr ? *added : std::string(vocabulary.text(id));
    if (skip_special && added_->is_special(text)) continue;
    bytes += text.size();
    check_text_bytes(bytes);
    texts.push_back(std::move(text));
  }
  decoder_(texts);
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

}  // namespace mft
