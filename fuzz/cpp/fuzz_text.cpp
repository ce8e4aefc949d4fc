/// A bundle's text.json, by which a dialogue, a pair and a prompt become tokens.

#include "fuzz/cpp/fuzz.h"
#include "runtime/text/bundle_text.h"

namespace {

constexpr const char* kTokenizer =
    R"({"normalizer":null,"pre_tokenizer":null,"decoder":null,"added_tokens":[],)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"ab":4},"merges":["a b"]}})";

}  // namespace

std::vector<std::string> seeds() {
  return {
      R"({"bos":0,"ends":[1,2],"chat":null})", R"({"bos":null,"ends":[1],"chat":"none"})",
      R"({"bos":null,"ends":[1],"chat":{"gaps":{"|first user":"<","|first user+":"<","|first user.":"<","first user|assistant":"><",)"
      R"("first user+|assistant.":"><","first user.|prompt":"><","assistant.|end":">"},)"
      R"("stripped":{"first user":["space",""],"first user+":["","\n "],"first user.":["",""],"assistant.":["a","b"]},)"
      R"("refused":["think"]}})"};
}

void run(const std::string& data) {
  static const std::string folder = mft_fuzz::scratch_folder();
  mft_fuzz::write_file(folder + "/tokenizer.json", kTokenizer);
  mft_fuzz::write_file(folder + "/text.json", data);
  const mft::BundleText text(folder + "/tokenizer.json", folder + "/text.json");
  text.text("ab");
  const std::vector<mft::Message> messages = {{"user", " ab\n"}, {"assistant", "aab\xc3\xa9"}};
  for (const bool first : {true, false}) {
    try {
      first ? (void)text.pair("ab", "b") : (void)text.prompt({messages[0]});
    } catch (const mft::Error&) {  // that the template has no such turn
    }
  }
  text.chat(messages);
}
