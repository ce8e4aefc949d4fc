/// A tokenizer.json, and a text of every kind that it encodes and decodes.

#include "fuzz/cpp/fuzz.h"
#include "runtime/tokenizer/tokenizer.h"

namespace {

/// All that a tokenizer.json may have, in turn, each with five tokens.
constexpr const char* kParts[] = {
    R"("normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]},"decoder":{"type":"ByteLevel"},)"
    R"("model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2,"\u0120":3,"c":4},"merges":[["a","b"]]})",
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"_"},)"
    R"({"type":"Strip","strip_left":true,"strip_right":true},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"_"}]},)"
    R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:'s|'t)?a|[^\\s\\p{L}]{1,3}|\\s+(?!\\S)|[a-c[_]]*?b"},)"
    R"("behavior":"MergedWithNext","invert":true},"decoder":{"type":"Sequence","decoders":[)"
    R"({"type":"Replace","pattern":{"Regex":"_|b+"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
    R"({"type":"Strip","content":" ","start":1,"stop":1}]},"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,)"
    R"("byte_fallback":true,"vocab":{"<unk>":0,"_":1,"<0x61>":2,"b":3,"_b":4},"merges":["_ b"]})",
    R"("normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true},)"
    R"("decoder":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"},)"
    R"("model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0.0],["_a",-1.5],["b",-2.0],["c",-3.0],["_",-4.0]]})",
};

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const char* parts : kParts) {
    all.push_back(std::string("{") + parts +
                  R"(,"added_tokens":[{"id":5,"content":"<s>","single_word":false,"lstrip":true,"rstrip":true,)"
                  R"("normalized":false,"special":true},{"id":6,"content":"b a","single_word":true,"lstrip":false,)"
                  R"("rstrip":false,"normalized":true,"special":false}]})");
  }
  return all;
}

void run(const std::string& data) {
  static const std::string path = mft_fuzz::scratch_folder() + "/tokenizer.json";
  mft_fuzz::write_file(path, data);
  const mft::Tokenizer tokenizer(path);
  std::vector<int64_t> ids;
  for (const mft::TextToken& token : tokenizer.encode("ab's  b a <s>\n12\xc3\xa9 e\xcc\x81 \xea\xb0\x80 <0x61>")) {
    ids.push_back(token.id);
  }
  for (int64_t id = 0; id < 12; ++id) ids.push_back(id);
  tokenizer.decode(ids, false);
  tokenizer.decode(ids, true);
}
