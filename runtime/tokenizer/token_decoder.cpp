#include "runtime/tokenizer/token_decoder.h"

#include <algorithm>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/source_text.h"
#include "runtime/unicode/unicode.h"

namespace mft {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

void fuse(Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  texts = {std::move(all)};
}

/// Decodes characters that represent bytes. Texts with any other character are not changed.
void from_byte_characters(Texts& texts) {
  std::string all;
  for (const std::string& text : texts) {
    std::string bytes;
    bool known = true;
    for (size_t i = 0; known && i < text.size();) {
      const int byte = character_byte(character_at(text, i, i));
      known = byte >= 0;
      bytes.push_back(static_cast<char>(byte));
    }
    all += known ? bytes : text;
  }
  texts = {valid_utf8(all)};
}

/// Returns the byte of a text such as <0x41>, or -1 for any other text.
int named_byte(const std::string& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (text.size() != 6 || text.compare(0, 3, "<0x") != 0 || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/// Decodes runs of byte tokens. Each byte of an invalid run becomes U+FFFD.
void from_named_bytes(Texts& texts) {
  Texts out;
  std::string bytes;
  const auto flush = [&] {
    if (invalid_utf8(bytes) == std::string::npos) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xef\xbf\xbd");
    }
    bytes.clear();
  };
  for (std::string& text : texts) {
    const int byte = named_byte(text);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    out.push_back(std::move(text));
  }
  flush();
  texts = std::move(out);
}

void replace(Texts& texts, const Regex& pattern, const std::string& content) {
  size_t total = 0;
  for (std::string& text : texts) {
    const Characters characters(text);
    std::string out;
    size_t done = 0;
    for (const Regex::Match& match : pattern.find_all(characters)) {
      out.append(text, done, characters.begin[match.begin] - done);
      out += content;
      check_text_bytes(total + out.size());
      done = characters.begin[match.end];
    }
    text = out.append(text, done);
    total += text.size();
  }
}

/// Removes up to this many of the character from the start and the end of each text.
void strip(Texts& texts, char32_t stripped, size_t start, size_t stop) {
  for (std::string& text : texts) {
    const auto up_to = [&](size_t left) { return [=](char32_t c) mutable { return c == stripped && left-- > 0; }; };
    const size_t begin = skip(text, 0, up_to(start));
    const size_t end = std::max(begin, skip_back(text, text.size(), up_to(stop)));
    text = text.substr(begin, end - begin);
  }
}

/// Replaces the mark by a space. Removes it from the first token if it was added there.
void from_marks(Texts& texts, const std::string& mark, bool prepended) {
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string out;
    for (size_t at = 0; at < texts[i].size();) {
      if (texts[i].compare(at, mark.size(), mark) == 0) {
        if (i > 0 || !prepended) out.push_back(' ');
        at += mark.size();
      } else {
        out.push_back(texts[i][at++]);
      }
    }
    texts[i] = std::move(out);
  }
}

}  // namespace

TokenDecoder make_token_decoder(const Json& json) {
  if (json.is_null()) {
    return [](Texts& texts) {
      for (size_t i = 1; i < texts.size(); ++i) texts[i].insert(0, " ");
    };
  }
  const std::string type = json.at("type");
  if (type == "Sequence") {
    std::vector<TokenDecoder> steps;
    for (const Json& step : json.at("decoders")) steps.push_back(make_token_decoder(step));
    return [steps](Texts& texts) {
      for (const TokenDecoder& step : steps) step(texts);
    };
  }
  if (type == "ByteLevel") return from_byte_characters;
  if (type == "ByteFallback") return from_named_bytes;
  if (type == "Fuse") return fuse;
  if (type == "Replace") {
    const auto pattern = std::make_shared<const Regex>(pattern_of(json.at("pattern")));
    const std::string content = json.at("content");
    return [pattern, content](Texts& texts) { replace(texts, *pattern, content); };
  }
  if (type == "Strip") {
    const std::string content = json.at("content");
    const Characters characters(content);
    if (characters.at.size() != 1) fail("its decoder strips ", content, "; it must be one character");
    const auto start = static_cast<size_t>(integer(json, "start", 0, INT32_MAX));
    const auto stop = static_cast<size_t>(integer(json, "stop", 0, INT32_MAX));
    return [c = characters.at[0], start, stop](Texts& texts) { strip(texts, c, start, stop); };
  }
  if (type == "Metaspace") {
    const std::string mark = metaspace_mark(json);
    const bool kept = metaspace_scheme(json) == "never";
    return [mark, kept](Texts& texts) { from_marks(texts, mark, !kept); };
  }
  fail("its decoder ", type, " is not supported");
}

}  // namespace mft
