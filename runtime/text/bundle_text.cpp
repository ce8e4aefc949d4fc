#include "runtime/text/bundle_text.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace mft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostId = INT32_MAX;  // limit of token files

int64_t token_of(const Json& json) {
  if (!json.is_number_integer() || json < 0 || json > kMostId) fail(json.dump(), " is not a token id");
  return json.get<int64_t>();
}

/// Calls `read` with the JSON of a file, and adds the file's name to errors.
template <typename Read>
void read_json_file(const std::string& path, const Read& read) {
  try {
    read(parse_json<Json>(read_text(path, kMostJsonBytes), "not JSON"));
  } catch (const Json::exception& error) {
    fail(path, ": ", error.what());
  } catch (const Error& error) {
    fail(path, ": ", error.what());
  }
}

/// Returns the texts of bos_token and so on. Older configurations have {"content": "</s>", ...} instead of "</s>".
std::map<std::string, std::string> named_tokens(const Json& config) {
  std::map<std::string, std::string> tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null()) continue;
    const Json& text = found->is_object() ? found->at("content") : *found;
    tokens[name] = text.get<std::string>();
  }
  return tokens;
}

}  // namespace

BundleText::BundleText(const std::string& tokenizer_json, const std::string& tokenizer_config_json,
                       const std::string& text_json)
    : tokenizer_(tokenizer_json) {
  read_json_file(text_json, [&](const Json& json) {
    if (!json.at("bos").is_null()) bos_ = token_of(json["bos"]);
    for (const auto& end : json.at("ends")) ends_.push_back(token_of(end));
    if (ends_.empty()) fail("has no token that ends a text");
  });
  read_json_file(tokenizer_config_json, [&](const Json& config) {
    const auto source = config.find("chat_template");
    if (source == config.end() || source->is_null()) return;
    chat_template_.emplace(source->get<std::string>(), named_tokens(config));
  });
}

EncodedText BundleText::rendered(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const {
  EncodedText encoded;
  for (const TextToken& token : tokenizer_.encode(text)) {
    encoded.tokens.push_back(token.id);
    encoded.learned.push_back(std::any_of(learned.begin(), learned.end(), [&](const auto& span) {
      return token.text.begin < span.second && token.text.end > span.first;
    }));
  }
  return encoded;
}

EncodedText BundleText::plain(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const {
  EncodedText encoded = rendered(text, learned);
  auto& tokens = encoded.tokens;
  if (bos_ && (tokens.empty() || tokens.front() != *bos_)) {
    tokens.insert(tokens.begin(), *bos_);
    encoded.learned.insert(encoded.learned.begin(), false);
  }
  if (tokens.empty() || std::find(ends_.begin(), ends_.end(), tokens.back()) == ends_.end()) {
    tokens.push_back(ends_.front());
    encoded.learned.push_back(true);
  }
  return encoded;
}

std::vector<int64_t> BundleText::prompt(const Chat& chat, const TemplateSettings& settings) const {
  if (!chat_template_) fail("the model has no chat template");
  std::vector<int64_t> ids;
  for (const TextToken& token : tokenizer_.encode(chat_template_->with(settings).prompt(chat))) ids.push_back(token.id);
  return ids;
}

}  // namespace mft
