#include "runtime/tokenizer/tokenizer_file.h"

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace mft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostListed = 16000000;  // values of the vocabulary and merges, up to four per entry

/// Removes the entries of "vocab" and "merges" of "model" from the JSON while it is parsed.
class Reader {
 public:
  explicit Reader(ModelFile& model) : model_(model) {}

  /// Returns whether the value is kept in the JSON.
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    const bool listed = part_ == "model" && depth >= 3;
    int64_t& count = listed ? listed_ : values_;
    const int64_t most = listed ? kMostListed : kMostJsonValues;
    if (++count > most) fail("more than ", most, " values");
    if (event == Event::object_start && ++objects_ > kMostJsonObjects) fail("more than ", kMostJsonObjects, " objects");
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMostJsonLevels) {
      fail("nested deeper than ", kMostJsonLevels, " levels");
    }
    if (event == Event::key) {
      if (depth == 1) part_ = value.get<std::string>();
      if (depth == 2) list_ = value.get<std::string>();
      if (depth == 3) text_ = value.get<std::string>();
      return true;
    }
    if (part_ != "model" || depth != 3 || event == Event::object_start || event == Event::array_start) return true;
    if (list_ == "merges") {
      merge(value);
      return false;
    }
    if (list_ == "vocab") {
      if (event == Event::array_end) {  // [token, score]; the id is the index
        model_.vocabulary.add(value.at(0).get<std::string>(), static_cast<int64_t>(model_.scores.size()));
        model_.scores.push_back(value.at(1).get<double>());
      } else {
        if (!value.is_number_integer()) fail("its token ", text_, " has the id ", value.dump());
        model_.vocabulary.add(text_, value.get<int64_t>());
      }
      return false;
    }
    return true;
  }

 private:
  /// "left right" or [left, right].
  void merge(const Json& value) {
    if (value.is_array() && value.size() == 2) {
      model_.merges.emplace_back(value[0].get<std::string>(), value[1].get<std::string>());
      return;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      fail("its merge ", value.dump(-1, ' ', false, Json::error_handler_t::replace), " must have two tokens");
    }
    model_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }

  ModelFile& model_;
  int64_t values_ = 0, listed_ = 0, objects_ = 0;
  std::string part_, list_, text_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(const std::string& text) {
  TokenizerFile file;
  Reader reader(file.model);
  file.parts =
      Json::parse(text, [&](int depth, Json::parse_event_t event, Json& value) { return reader(depth, event, value); });
  file.model.options = file.parts.at("model");
  file.parts.erase("model");
  // Files of older versions do not have it.
  file.type = file.model.options.value("type", file.model.scores.empty() ? "BPE" : "Unigram");
  if (file.type != "BPE" && file.type != "Unigram") fail("its model ", file.type, " is not supported");
  if (file.type == "Unigram" && static_cast<int64_t>(file.model.scores.size()) != file.model.vocabulary.size()) {
    fail("its vocabulary is not that of a Unigram model");
  }
  return file;
}

}  // namespace mft
