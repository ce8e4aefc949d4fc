// Text from tokens piece by piece: whole characters, each of them once, whatever bytes the tokens are.

#include "runtime/tests/test_support.h"
#include "runtime/text/text_stream.h"

using namespace mft;
using namespace mft_test;

namespace {

// SentencePiece's decoder, as Llama 2 has it.
const std::string kTokenizer = R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "vocab": {"▁a": 0, "▁b": 1, "<0x0A>": 2, "<0xE2>": 3, "<0x82>": 4, "<0xAC>": 5, "<0xF0>": 6,
    "<0x00>": 7},
    "merges": []}})";
constexpr int64_t kA = 0, kB = 1, kNewline = 2, kE2 = 3, k82 = 4, kAC = 5, kF0 = 6, kNul = 7;

using Texts = std::vector<std::string>;

/// The pieces of these tokens, and what is left at the end.
Texts pieces(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens) {
  TextStream stream(tokenizer);
  Texts found;
  for (const int64_t token : tokens) found.push_back(stream.add(token));
  found.push_back(stream.finish());
  return found;
}

}  // namespace

int main() {
  const TempFolder folder;
  write_file(folder / "tokenizer.json", kTokenizer);
  const Tokenizer tokenizer(folder / "tokenizer.json");
  CHECK((pieces(tokenizer, {kA, kNewline, kB}) == Texts{"a", "\n", " b", ""}));
  CHECK((pieces(tokenizer, {kE2, k82, kAC, kB}) == Texts{"", "", "€", " b", ""}));
  // A run of bytes that is not UTF-8 is replaced as a whole. Bytes before, which were text, are not shown once more.
  CHECK((pieces(tokenizer, {kNewline, kF0, kB, kA}) == Texts{"\n", "", "\uFFFD b", " a", ""}));
  CHECK((pieces(tokenizer, {kE2, k82, kAC, kF0, kB}) == Texts{"", "", "€", "", "\uFFFD b", ""}));
  CHECK((pieces(tokenizer, {kA, kE2, k82, kB, kNewline}) == Texts{"a", "", "", "\uFFFD\uFFFD b", "\n", ""}));
  CHECK((pieces(tokenizer, {kNewline, kF0, kE2}) == Texts{"\n", "", "", "\uFFFD\uFFFD"}));
  CHECK((pieces(tokenizer, {kA, kNul, kB, kNul, kE2}) == Texts{"a", "\uFFFD", " b", "\uFFFD", "", "\uFFFD"}));
  return finish();
}
