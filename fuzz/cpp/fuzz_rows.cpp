/// Rows of training data in a .jsonl file: read, added to, made a token file, which must then be a good one.

#include "fuzz/cpp/fuzz.h"
#include "runtime/bundle/token_file.h"
#include "runtime/data/dataset.h"

namespace {

constexpr const char* kTokenizer =
    R"({"normalizer":null,"pre_tokenizer":null,"decoder":null,"added_tokens":[],)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"ab":4},"merges":["a b"]}})";
constexpr const char* kText = R"({"bos":0,"ends":[1,2]})";
/// Hermes' form of tool calls, with thoughts.
constexpr const char* kConfig =
    R"J({"eos_token":"b","chat_template":"{{ tools|tojson if tools }}{% for m in messages %}<{{ m.role }}>)J"
    R"J({{ m.reasoning_content }}{{ m.content }}{% for call in m.tool_calls %}{{ call.function.name }})J"
    R"J({{ call.function.arguments|tojson }}{% endfor %}{{ eos_token }}{% endfor %})J"
    R"J({% if add_generation_prompt %}<assistant>{% endif %}"})J";

}  // namespace

std::vector<std::string> seeds() {
  return {
      "{\"text\":\"abab\",\"weight\":2}\n{\"prompt\":\"a\",\"completion\":\"b\"}\n\n{\"question\":\"a\",\"answer\":"
      "\"b\"}",
      R"({"messages":[{"role":"user","content":"ab"},{"role":"assistant","content":"aab"}]})",
      "{\"prompt\":\"a\",\"chosen\":\"ab\",\"rejected\":\"ba\",\"weight\":0.5}\n"
      R"({"prompt":[{"role":"user","content":"a"}],"chosen":[{"role":"assistant","content":"b"}],)"
      "\"rejected\":[{\"role\":\"assistant\",\"content\":\"a\"}]}\n{\"text\":",
      R"({"tools":[{"function":{"name":"f"}}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
      R"({"role":"tool","content":"b"},{"role":"assistant","content":"ab","reasoning_content":"a","weight":0}]})",
      R"({"conversations":[{"from":"system","value":"a"},{"from":"human","value":"b"},)"
      R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},{"from":"observation","value":"a"},)"
      R"({"from":"gpt","value":"ab"}],"chat_template_kwargs":{"tools":[1]}})",
      R"({"instruction":"a","input":"b","output":"ab","history":[["a","b"]],"system":"a"})",
      R"({"input":{"messages":[{"role":"user","content":"a"}]},"preferred_output":[{"role":"assistant","content":"a"}],)"
      R"("non_preferred_output":[{"role":"assistant","content":"b"}]})",
      R"({"chosen":"a ab","rejected":"a b"})",
      R"({"prompt":"a","completion":"b","label":false})",
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"label":true})"};
}

void run(const std::string& data) {
  static const std::string folder = mft_fuzz::scratch_folder();
  mft_fuzz::write_file(folder + "/tokenizer.json", kTokenizer);
  mft_fuzz::write_file(folder + "/text.json", kText);
  mft_fuzz::write_file(folder + "/tokenizer_config.json", kConfig);
  mft_fuzz::write_file(folder + "/rows.jsonl", data);
  const std::string tokens = folder + "/tokens";
  mft::BundleText text(folder + "/tokenizer.json", folder + "/tokenizer_config.json", folder + "/text.json");
  mft::Dataset dataset(std::move(text), folder + "/rows.jsonl");
  for (const char* loss : {"sft", "dpo", "kto"}) {
    try {
      dataset.write_tokens(tokens, mft::make_train_config({{"seq_len", "8"}, {"loss", loss}}));
      mft::TokenFile(tokens, 5);
    } catch (const mft::Error&) {  // rows of the other kind
    }
  }
  dataset.add(R"({"text": "ab"})");
}
