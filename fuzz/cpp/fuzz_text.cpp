/// A bundle's text.json and tokenizer_config.json, with a zero byte between, by which chats and texts become tokens.

#include "fuzz/cpp/fuzz.h"
#include "runtime/text/bundle_text.h"

namespace {

constexpr const char* kTokenizer =
    R"({"normalizer":null,"pre_tokenizer":null,"decoder":null,"added_tokens":[],)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"<":2,">":3,"ab":4},"merges":["a b"]}})";

std::string seed(const std::string& text, const std::string& config) { return text + std::string(1, '\0') + config; }

}  // namespace

std::vector<std::string> seeds() {
  return {
      seed(R"({"bos":0,"ends":[1,2]})", R"({"chat_template":null})"),
      seed(R"({"bos":null,"ends":[1],"chat":"none"})", "{}"),
      seed(R"({"bos":null,"ends":[1]})",
           R"({"chat_template":"{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %})"
           R"({% if add_generation_prompt %}<assistant>{% endif %}","eos_token":{"content":"b"},"bos_token":"a"})")};
}

void run(const std::string& data) {
  static const std::string folder = mft_fuzz::scratch_folder();
  const size_t split = std::min(data.find('\0'), data.size());
  mft_fuzz::write_file(folder + "/tokenizer.json", kTokenizer);
  mft_fuzz::write_file(folder + "/text.json", data.substr(0, split));
  mft_fuzz::write_file(folder + "/tokenizer_config.json", data.substr(std::min(split + 1, data.size())));
  const mft::BundleText text(folder + "/tokenizer.json", folder + "/tokenizer_config.json", folder + "/text.json");
  text.plain("ab", {{0, 1}});
  mft::Chat chat;
  chat.add("user", " ab\n");
  try {
    text.prompt(chat);
  } catch (const mft::Error&) {  // that the template refuses
  }
  chat.add("assistant", "aab\xc3\xa9");
  if (text.chat_template() == nullptr) return;
  const mft::RenderedChat rendered = text.chat_template()->answers(chat);
  std::vector<std::pair<size_t, size_t>> learned;
  for (const mft::Answer& answer : rendered.answers) learned.emplace_back(answer.begin, answer.end);
  text.rendered(rendered.text, learned);
}
