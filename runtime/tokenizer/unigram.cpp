#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/tokenizer/prefix_table.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

constexpr double kUnknownPenalty = 10.0;  // subtracted from the lowest score

class Unigram : public TokenModel {
 public:
  explicit Unigram(ModelFile file) : TokenModel(std::move(file.vocabulary)), scores_(std::move(file.scores)) {
    const nlohmann::json& options = file.options;
    if (options.contains("unk_id") && !options["unk_id"].is_null()) {
      unknown_ = integer(options, "unk_id", 0, INT32_MAX);
      if (!vocabulary_.has(unknown_)) fail("its unknown token ", unknown_, " is not in the vocabulary");
    }
    if (options.contains("byte_fallback") && options["byte_fallback"] == true) bytes_ = byte_tokens();
    for (int64_t id = 0; id < vocabulary_.size(); ++id) {
      tokens_.add(vocabulary_.text(id), id);
      if (!std::isfinite(scores_[static_cast<size_t>(id)])) fail("its token ", vocabulary_.text(id), " has no score");
      lowest_ = std::min(lowest_, scores_[static_cast<size_t>(id)]);
    }
    tokens_.sort();
  }

  void encode(std::string_view word, std::vector<WordToken>& tokens) const override {
    const size_t first = tokens.size();
    const std::vector<Step> best = best_steps(word);
    for (size_t end = word.size(); end > 0;) {
      const Step& step = best[end];
      const bool unknown = step.id == unknown_;
      if (unknown && tokens.size() > first && tokens.back().id == unknown_) {
        tokens.back().length += end - step.begin;  // neighbouring unknown characters become one token
      } else {
        tokens.push_back({step.id, end - step.begin});
      }
      end = step.begin;
    }
    std::reverse(tokens.begin() + static_cast<ptrdiff_t>(first), tokens.end());
    spell_unknown(word, tokens, first);
  }

 private:
  /// The last token of the best split of the text up to a byte.
  struct Step {
    int64_t id = -1;
    size_t begin = SIZE_MAX;
    double score = 0;
  };

  std::vector<Step> best_steps(std::string_view word) const {
    std::vector<Step> best(word.size() + 1);
    for (size_t at = 0, next; at < word.size(); at = next) {
      character_at(word, at, next);
      const auto consider = [&](size_t end, int64_t id, double score) {
        const double sum = best[at].score + score;
        if (best[end].begin == SIZE_MAX || sum > best[end].score) best[end] = {id, at, sum};
      };
      bool known = false;
      tokens_.find(word.substr(at), [&](size_t length, int64_t id) {
        if (length == 0) return;
        consider(at + length, id, scores_[static_cast<size_t>(id)]);
        known = known || at + length == next;
      });
      if (known) continue;
      if (unknown_ < 0) fail("the tokenizer has no token for a character of this text, and no unknown token");
      consider(next, unknown_, lowest_ - kUnknownPenalty);
    }
    return best;
  }

  /// Replaces unknown characters by a token of all of them together, or by tokens of their bytes.
  void spell_unknown(std::string_view word, std::vector<WordToken>& tokens, size_t first) const {
    std::vector<WordToken> spelled;
    size_t at = 0;
    for (size_t i = first; i < tokens.size(); ++i) {
      const std::string_view text = word.substr(at, tokens[i].length);
      at += tokens[i].length;
      const int64_t whole = tokens[i].id == unknown_ ? vocabulary_.find(text) : tokens[i].id;
      const auto known = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; };
      if (whole >= 0) {
        spelled.push_back({whole, text.size()});
      } else if (!bytes_.empty() && std::all_of(text.begin(), text.end(), known)) {
        for (const char byte : text) spelled.push_back({bytes_[static_cast<unsigned char>(byte)], 1});
      } else {
        spelled.push_back(tokens[i]);
      }
    }
    tokens.resize(first);
    tokens.insert(tokens.end(), spelled.begin(), spelled.end());
  }

  std::vector<double> scores_;
  double lowest_ = INFINITY;
  PrefixTable tokens_;
  int64_t unknown_ = -1;
  std::vector<int64_t> bytes_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(ModelFile file) { return std::make_unique<Unigram>(std::move(file)); }

}  // namespace mft
