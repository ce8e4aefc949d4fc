/// Python view of runtime/text and runtime/data: packing, and for tests against Hugging Face's `tokenizers` and the
/// rows that Python reads.

#include "runtime/python/text.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "runtime/core/json.h"
#include "runtime/data/dataset.h"
#include "runtime/data/packing.h"
#include "runtime/text/bundle_text.h"

namespace nb = nanobind;

namespace mft {
namespace {

using Messages = std::vector<std::pair<std::string, std::string>>;  // role and content
using Row = std::pair<std::vector<int64_t>, std::vector<bool>>;

std::vector<Message> messages_of(const Messages& messages) {
  std::vector<Message> all;
  for (const auto& [role, content] : messages) all.push_back({role, content});
  return all;
}

Row row_of(EncodedText row) { return {std::move(row.tokens), std::move(row.learned)}; }

}  // namespace

void register_text(nb::module_ m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "A tokenizer.json; makes the same tokens as Hugging Face's `tokenizers`.")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def(
          "encode",
          [](const Tokenizer& tokenizer, const std::string& text) {
            std::pair<std::vector<int64_t>, std::vector<std::pair<uint32_t, uint32_t>>> found;
            for (const TextToken& token : tokenizer.encode(text)) {
              found.first.push_back(token.id);
              found.second.emplace_back(token.text.begin, token.text.end);
            }
            return found;
          },
          nb::arg("text"), "Tokens, and the bytes [begin, end) of the text that each stands for.")
      .def("decode", &Tokenizer::decode, nb::arg("tokens"), nb::arg("skip_special") = false);
  nb::class_<BundleText>(m, "BundleText", "How a bundle's model reads text: rows as tokens, and which are learned.")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("tokenizer_json"), nb::arg("text_json"))
      .def(
          "chat",
          [](const BundleText& text, const Messages& messages, size_t learned_from) {
            return row_of(text.chat(messages_of(messages), learned_from));
          },
          nb::arg("messages"), nb::arg("learned_from") = 0)
      .def(
          "pair",
          [](const BundleText& text, const std::string& prompt, const std::string& completion) {
            return row_of(text.pair(prompt, completion));
          },
          nb::arg("prompt"), nb::arg("completion"))
      .def(
          "text", [](const BundleText& text, const std::string& given) { return row_of(text.text(given)); },
          nb::arg("text"))
      .def(
          "prompt", [](const BundleText& text, const Messages& messages) { return text.prompt(messages_of(messages)); },
          nb::arg("messages"))
      .def_prop_ro("end_tokens", &BundleText::end_tokens);
  nb::class_<Dataset>(m, "Dataset", "Rows of training data in a .jsonl file that grows as they are added.")
      .def(nb::init<const std::string&, std::string>(), nb::arg("bundle"), nb::arg("path"))
      .def(
          "add",
          [](Dataset& dataset, const std::string& row) {
            dataset.add(parse_json<nlohmann::json>(row, "not JSON; a row is one JSON object"));
          },
          nb::arg("row"))
      .def_prop_ro("rows", &Dataset::rows)
      .def(
          "write_tokens",
          [](const Dataset& dataset, const std::string& tokens, const TrainConfig& config) {
            const DataStats stats = dataset.write_tokens(tokens, config);
            return std::map<std::string, int64_t>{
                {"rows", stats.rows},           {"sequences", stats.sequences},
                {"tokens", stats.tokens},       {"target_tokens", stats.target_tokens},
                {"truncated", stats.truncated}, {"dropped", stats.dropped}};
          },
          nb::arg("tokens"), nb::arg("config"));
  m.def("pack", &pack, nb::arg("lengths"), nb::arg("seq_len"), nb::arg("seed"),
        "Which items of so many places share a sequence: shuffled by the seed, packed whole into sequences of at most "
        "seq_len places.");
}

}  // namespace mft
