/// Python view of runtime/text and runtime/data: packing, and for tests against Hugging Face's `tokenizers` and the
/// rows that Python reads.

#include "runtime/python/text.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "runtime/data/dataset.h"
#include "runtime/data/packing.h"
#include "runtime/data/row_text.h"
#include "runtime/jinja/json.h"
#include "runtime/text/bundle_text.h"

namespace nb = nanobind;

namespace mft {
namespace {

using CharacterSpan = std::pair<int64_t, int64_t>;
using EncodedSide = std::pair<std::vector<int64_t>, std::vector<bool>>;

EncodedSide side_of(EncodedText row) { return {std::move(row.tokens), std::move(row.learned)}; }

/// Places in bytes of `text` as places in characters, which Python counts. Spans are in order.
std::vector<CharacterSpan> in_characters(const std::string& text, const std::vector<std::pair<size_t, size_t>>& spans) {
  std::vector<CharacterSpan> found;
  size_t at = 0;
  int64_t characters = 0;
  const auto place = [&](size_t end) {
    if (end < at) at = 0, characters = 0;
    characters += jinja::count_characters(std::string_view(text).substr(at, end - at));
    at = end;
    return characters;
  };
  for (const auto& [begin, end] : spans) {
    const int64_t first = place(begin);
    found.emplace_back(first, place(end));
  }
  return found;
}

/// Reads rows as a bundle's model does: what they say, in its chat template, and which of it is learned.
class RowReader {
 public:
  RowReader(const ChatTemplate* chat_template, DataConfig config) : config_(std::move(config)) {
    if (chat_template == nullptr) return;
    chat_template_.emplace(chat_template->with({config_.chat_template_kwargs, config_.chat_template_date}));
  }

  RowText read(const std::string& json) const {
    const mft::Row row = parse_row(json, {config_.messages_key, config_.prompt_key, config_.completion_key});
    return row_text(row, chat_template_ ? &*chat_template_ : nullptr, config_);
  }

 private:
  DataConfig config_;
  std::optional<ChatTemplate> chat_template_;
};

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
  nb::class_<ChatTemplate>(m, "ChatTemplate", "A chat template, Jinja; renders what Transformers renders, or refuses.")
      .def(
          "__init__",
          [](ChatTemplate* self, const std::string& source, const std::map<std::string, std::string>& tokens,
             const std::string& kwargs,
             const std::string& date) { new (self) ChatTemplate(source, tokens, {kwargs, date}); },
          nb::arg("source"), nb::arg("tokens") = std::map<std::string, std::string>(), nb::arg("kwargs") = "",
          nb::arg("date") = "", "`tokens` has the texts of bos_token and so on, `kwargs` variables as JSON.")
      .def(
          "prompt",
          [](const ChatTemplate& chat_template, const std::string& chat) {
            return chat_template.prompt(parse_chat(chat));
          },
          nb::arg("chat"),
          "A chat, as JSON of its messages, tools and chat_template_kwargs, with the beginning of the next answer.")
      .def(
          "answers",
          [](const ChatTemplate& chat_template, const std::string& chat) {
            const RenderedChat rendered = chat_template.answers(parse_chat(chat));
            std::vector<std::pair<size_t, size_t>> spans;
            for (const Answer& answer : rendered.answers) spans.emplace_back(answer.begin, answer.end);
            return std::make_pair(rendered.text, in_characters(rendered.text, spans));
          },
          nb::arg("chat"), "The text of a chat, and the characters [begin, end) of each of its answers.")
      .def_prop_ro("shows_date", &ChatTemplate::shows_date, "Whether the template asks for the date.");
  m.def(
      "render_template",
      [](const std::string& source, const std::string& variables) {
        jinja::Memory data(Chat::kBudget), memory;
        const jinja::Value given = jinja::read_json(variables, data);
        if (!given.is(jinja::Type::kDict)) fail("must be an object of variables");
        Variables named;
        for (const auto& [name, value] : given.dict().items()) named.emplace_back(name.text(), value);
        const std::time_t now = std::time(nullptr);
        std::tm date{};
        localtime_r(&now, &date);
        return jinja::Template(source).render(named, nullptr, date, memory).text;
      },
      nb::arg("source"), nb::arg("variables"), "What a template makes of variables, which are JSON: for tests.");
  nb::class_<RowText>(m, "RowText", "A row as text: one side, or the chosen and the rejected one of a preference.")
      .def_prop_ro(
          "sides",
          [](const RowText& row) {
            std::vector<std::tuple<std::string, std::vector<CharacterSpan>, bool>> sides;
            for (const LearnedText& side : row.sides) {
              sides.emplace_back(side.text, in_characters(side.text, side.learned), side.rendered);
            }
            return sides;
          },
          "(text, characters [begin, end) that are learned, whether a chat template rendered it) of each.")
      .def_ro("plain", &RowText::plain, "Whether it is plain text, learned whole and in windows.")
      .def_ro("weight", &RowText::weight)
      .def_ro("label", &RowText::label, "Whether the answer is liked; None if the row does not say so.")
      .def_ro("form", &RowText::form, "What form of row it was, for people.");
  nb::class_<RowReader>(m, "RowReader", "Reads rows of training data, one JSON object each.")
      .def(nb::init<const ChatTemplate*, DataConfig>(), nb::arg("chat_template").none(), nb::arg("config"))
      .def("read", &RowReader::read, nb::arg("json"));
  nb::class_<BundleText>(m, "BundleText", "How a bundle's model reads text on a device.")
      .def(nb::init<const std::string&, const std::string&, const std::string&>(), nb::arg("tokenizer_json"),
           nb::arg("tokenizer_config_json"), nb::arg("text_json"))
      .def(
          "row",
          [](const BundleText& text, const std::string& json, const DataConfig& config) {
            const RowText row = row_text(parse_row(json), text.chat_template(), config);
            std::vector<EncodedSide> sides;
            for (const LearnedText& side : row.sides) {
              sides.push_back(side_of(side.rendered ? text.rendered(side.text, side.learned)
                                                    : text.plain(side.text, side.learned)));
            }
            return sides;
          },
          nb::arg("json"), nb::arg("config") = DataConfig(), "Tokens of each side, and which are learned.")
      .def(
          "prompt", [](const BundleText& text, const std::string& chat) { return text.prompt(parse_chat(chat)); },
          nb::arg("chat"))
      .def_prop_ro("end_tokens", &BundleText::end_tokens);
  nb::class_<Dataset>(m, "Dataset", "Rows of training data in a .jsonl file that grows as they are added.")
      .def(nb::init<const std::string&, std::string>(), nb::arg("bundle"), nb::arg("path"))
      .def(
          "add", [](Dataset& dataset, const std::string& row) { dataset.add(row); }, nb::arg("row"))
      .def_prop_ro("rows", &Dataset::rows)
      .def(
          "write_tokens",
          [](const Dataset& dataset, const std::string& tokens, const TrainConfig& config) {
            const DataStats stats = dataset.write_tokens(tokens, config);
            return std::map<std::string, int64_t>{{"rows", stats.rows},
                                                  {"sequences", stats.sequences},
                                                  {"tokens", stats.tokens},
                                                  {"target_tokens", stats.target_tokens},
                                                  {"truncated", stats.truncated},
                                                  {"dropped", stats.dropped},
                                                  {"bad", stats.bad}};
          },
          nb::arg("tokens"), nb::arg("config"));
  m.def("pack", &pack, nb::arg("lengths"), nb::arg("seq_len"), nb::arg("seed"),
        "Assigns items of these lengths to sequences: shuffles them by the seed, and packs them unsplit into "
        "sequences of at most seq_len places.");
}

}  // namespace mft
