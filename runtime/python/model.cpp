#include "runtime/python/model.h"

#include "runtime/generate/generator.h"
#include "runtime/python/calls.h"
#include "runtime/python/tensors.h"
#include "runtime/train/evaluate.h"

namespace mft {
namespace {

/// Logits [T, vocab_size] of a sequence.
Array logits(Model& model, const Tokens& tokens, const Tokens& positions) {
  check_tokens(model, tokens, positions);
  const int64_t t = static_cast<int64_t>(tokens.shape(0));
  const size_t hidden = static_cast<size_t>(model.bundle().hidden_size);
  const size_t vocab = static_cast<size_t>(model.bundle().vocab_size);
  std::vector<float> x(tokens.shape(0) * hidden), y(x.size()), out(tokens.shape(0) * vocab);
  {
    Working working(model);
    model.embed(tokens.data(), t, x.data());
    for (size_t u = 0; u < model.bundle().units.size(); ++u) {
      model.forward(u, x.data(), positions.data(), t, y.data());
      x.swap(y);
    }
    // One row at a time: the model is prepared for that much scratch only.
    for (size_t i = 0; i < tokens.shape(0); ++i) model.logits(x.data() + i * hidden, 1, out.data() + i * vocab);
  }
  return array(std::move(out), {tokens.shape(0), vocab});
}

Array logits_after(Generator& generator, const std::vector<int64_t>& prompt, const GenerateConfig& config) {
  std::vector<float> out;
  {
    Working working(generator.model());
    out = generator.logits_after(prompt, config);
  }
  const size_t size = out.size();
  return array(std::move(out), {size});
}

std::vector<int64_t> generate(Generator& generator, const std::vector<int64_t>& prompt, const GenerateConfig& config,
                              const nb::object& on_token, const nb::object& on_prompt) {
  Callback callback;
  std::vector<int64_t> answer;
  const auto goes_on = [&](const nb::object& asked, const auto&... arguments) {
    bool go_on = true;
    const bool went_on = callback.call([&] {
      if (!asked.is_none()) go_on = !asked(arguments...).is(nb::bool_(true));
    });
    return went_on && go_on;
  };
  {
    Working working(generator.model());
    answer = generator.generate(
        prompt, config, [&](int64_t token) { return goes_on(on_token, token); }, [&] { return goes_on(on_prompt); });
  }
  callback.rethrow();
  return answer;
}

}  // namespace

void register_model(nb::module_ m) {
  using namespace nb::literals;
  nb::class_<Model>(m, "Model", "A bundle that is ready to run. Weights are verified when they are first used.")
      .def(nb::init<const std::string&>(), "bundle"_a)
      .def(
          "prepare",
          [](Model& model, const std::string& adapter, int64_t tokens) {
            Working working(model);
            model.prepare(adapter, tokens);
          },
          "adapter"_a, "tokens"_a,
          "Loads an adapter folder ('' for the bundle's own) and makes room for calls of `tokens` tokens.")
      .def(
          "use_adapter",
          [](Model& model, bool on) {
            Working working(model);
            if (model.claimed()) fail("a trainer uses this model; open the bundle again to use it for something else");
            model.use_adapter(on);
          },
          "on"_a, "Off: the model computes without its adapter, as it was exported.")
      .def_prop_ro("max_seq_len", [](const Model& model) { return model.bundle().max_seq_len; })
      .def_prop_ro("vocab_size", [](const Model& model) { return model.bundle().vocab_size; })
      .def("logits", &logits, "tokens"_a, "positions"_a, "Logits float32 [T, vocab_size]; int64 inputs [T].")
      .def(
          "parameters",
          [](const Model& model) {
            const auto call = model.begin_call();
            if (model.parameters() == nullptr) fail("the model is not prepared; call prepare first");
            return tensors(model, LoraTrain::kBoth,
                           [&](size_t unit) { return model.parameters() + model.layout().range(unit).begin; });
          },
          "LoRA parameters by PEFT name, copied.");

  nb::class_<Generator>(
      m, "Generator",
      "Generates from a prepared Model. Keeps its KV cache, so that a chat continues without computing it again.")
      .def(nb::init<Model&>(), "model"_a, nb::keep_alive<1, 2>())
      .def(
          "generate", &generate, "prompt"_a, "config"_a, "on_token"_a = nb::none(), "on_prompt"_a = nb::none(),
          "Returns the tokens of the answer. `on_token` receives each token, and ends the answer by returning True. So "
          "does `on_prompt`, which is called between pieces of a long prompt.")
      .def(
          "use_adapter",
          [](Generator& generator, const std::string& folder) {
            Working working(generator.model());
            generator.use_adapter(folder);
          },
          "folder"_a,
          "Answers with the adapter in this folder ('' for the bundle's own). Those that were used last are still in "
          "memory, unless their files have changed.")
      .def(
          "use_no_adapter",
          [](Generator& generator) {
            Working working(generator.model());
            generator.use_no_adapter();
          },
          "Answers without an adapter.")
      .def("logits_after", &logits_after, "prompt"_a, "config"_a,
           "Logits float32 [vocab_size] of the token after `prompt`, computed as `generate` does.")
      .def_prop_ro_static(
          "prompt_tokens", [](nb::handle) { return Generator::kPromptTokens; },
          "Number of tokens to prepare the model for, unless its max_seq_len is smaller.");
  m.def(
      "evaluate",
      [](Model& model, const std::string& adapter, const std::string& data) {
        Working working(model);
        const LossSum sum = evaluate_file(model, adapter, data);
        return std::make_pair(sum.loss / static_cast<double>(sum.count), sum.count);
      },
      "model"_a, "adapter"_a, "data"_a,
      "Mean loss and target count of a token file, with an adapter folder ('' for the bundle's own).");
}

}  // namespace mft
