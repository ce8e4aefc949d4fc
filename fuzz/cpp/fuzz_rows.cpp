/// Rows of training data in a .jsonl file: read, added to, made a token file, which must then be a good one.

#include "fuzz/cpp/fuzz.h"
#include "runtime/core/token_file.h"
#include "runtime/data/dataset.h"

namespace {

constexpr const char* kTokenizer =
    R"({"normalizer":null,"pre_tokenizer":null,"decoder":null,"added_tokens":[],)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"ab":4},"merges":["a b"]}})";
constexpr const char* kText =
    R"({"bos":0,"ends":[1,2],"chat":{"gaps":{"|first user.":"<","first user.|assistant.":"><","assistant.|end":">"},)"
    R"("stripped":{"first user.":["",""],"assistant.":["",""]},"refused":[]}})";

}  // namespace

std::vector<std::string> seeds() {
  return {
      "{\"text\":\"abab\",\"weight\":2}\n{\"prompt\":\"a\",\"completion\":\"b\"}\n\n{\"question\":\"a\",\"answer\":"
      "\"b\"}",
      R"({"messages":[{"role":"user","content":"ab"},{"role":"assistant","content":"aab"}]})",
      "{\"prompt\":\"a\",\"chosen\":\"ab\",\"rejected\":\"ba\",\"weight\":0.5}\n"
      R"({"prompt":[{"role":"user","content":"a"}],"chosen":[{"role":"assistant","content":"b"}],)"
      "\"rejected\":[{\"role\":\"assistant\",\"content\":\"a\"}]}\n{\"text\":"};
}

void run(const std::string& data) {
  static const std::string folder = mft_fuzz::scratch_folder();
  mft_fuzz::write_file(folder + "/tokenizer.json", kTokenizer);
  mft_fuzz::write_file(folder + "/text.json", kText);
  mft_fuzz::write_file(folder + "/rows.jsonl", data);
  const std::string tokens = folder + "/tokens";
  mft::Dataset dataset(folder, folder + "/rows.jsonl");
  for (const char* loss : {"sft", "dpo"}) {
    try {
      dataset.write_tokens(tokens, mft::make_train_config({{"seq_len", "8"}, {"loss", loss}}));
      mft::TokenFile(tokens, 5);
    } catch (const mft::Error&) {  // rows of the other kind
    }
  }
  dataset.add({{"text", "ab"}});
}
