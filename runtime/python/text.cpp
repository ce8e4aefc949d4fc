/// Python view of runtime/text: for tests against Hugging Face's `tokenizers`.

#include "runtime/python/text.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "runtime/text/tokenizer.h"

namespace nb = nanobind;

namespace mft {

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
}

}  // namespace mft
