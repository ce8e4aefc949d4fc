/// Python view of the runtime: the same runs, models and generators as mft-run's. numpy arrays only.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <exception>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/process_memory.h"
#include "runtime/base/renamed.h"
#include "runtime/bundle/signature.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/formats/quantize.h"
#include "runtime/generate/generator.h"
#include "runtime/model/model.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"
#ifdef MFT_PYTHON_KERNELS
#include "runtime/python/kernels.h"
#endif
#include "runtime/python/text.h"

namespace nb = nanobind;

namespace mft {
namespace {

using Tokens = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, float>;

Array array(std::vector<float>&& values, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<float>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return Array(owned->data(), shape, owner);
}

void check_tokens(const Model& model, const Tokens& tokens, const Tokens& positions) {
  if (tokens.shape(0) != positions.shape(0)) fail("tokens and positions must have the same length");
  for (size_t i = 0; i < tokens.shape(0); ++i) {
    if (tokens.data()[i] < 0 || tokens.data()[i] >= model.bundle().vocab_size) {
      fail("token ", tokens.data()[i], " is not in the vocabulary of ", model.bundle().vocab_size);
    }
  }
}

/// A call that computes with a model, while other Python threads run. Throws Busy if another call is in progress on it.
class Working {
 public:
  explicit Working(const Model& model) : call_(model.begin_call()) {}

 private:
  Exclusive::Call call_;
  nb::gil_scoped_release released_;
};

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Importance = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::numpy, uint8_t>;

Bytes quantized(const Matrix& weight, const std::string& name, const float* importance, size_t importances) {
  Format format;
  if (!parse_format(name, &format)) fail("weight format ", name, " is not known");
  const int64_t rows = static_cast<int64_t>(weight.shape(0)), cols = static_cast<int64_t>(weight.shape(1));
  if (rows == 0 || cols == 0 || cols % format.group != 0) {
    fail("[", rows, ", ", cols, "] cannot be ", name, ", whose groups are of ", format.group, " columns");
  }
  if (importances != weight.shape(1)) fail(importances, " importances for ", cols, " columns");
  for (size_t i = 0; importance != nullptr && i < importances; ++i) {
    if (!(importance[i] > 0) || !std::isfinite(importance[i])) fail("importance ", importance[i], " of column ", i);
  }
  auto* packed = new std::vector<uint8_t>(packed_bytes(format, rows, cols));
  nb::capsule owner(packed, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
  bool fits = false;
  {
    nb::gil_scoped_release released;
    fits = quantize(weight.data(), rows, cols, importance, format, packed->data());
  }
  if (!fits) fail("holds numbers that are not finite, or too large for ", name);
  const size_t panels = (weight.shape(0) + kPanelRows - 1) / kPanelRows;
  return Bytes(packed->data(), {panels, weight.shape(1) / static_cast<size_t>(format.group), format.block_bytes()},
               owner);
}

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

/// {PEFT tensor name: float32 array} of what `unit_values(unit)` holds of the unit's trained tensors, in the layout's
/// order; a null unit is left out.
template <typename UnitValues>
std::map<std::string, Array> tensors(const Model& model, LoraTrain train, const UnitValues& unit_values) {
  std::map<std::string, Array> result;
  for (size_t u = 0; u < model.layout().units.size(); ++u) {
    const float* from = unit_values(u);
    if (from == nullptr) continue;
    for (const AdapterTensor& t : model.layout().units[u]) {
      const size_t begin = model.layout().trained(u, train).begin;
      if (t.offset < begin) continue;
      const float* first = from + (t.offset - begin);
      std::vector<float> values(first, first + t.size());
      result.emplace(t.name, array(std::move(values), {static_cast<size_t>(t.rows), static_cast<size_t>(t.cols)}));
    }
  }
  return result;
}

/// A Python value as an option's text: numbers as they print, lists with commas between.
std::string option_text(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) fail(nb::cast<std::string>(nb::str(value)), ": a number or text is wanted");
  if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
    return nb::cast<std::string>(nb::str(value));
  }
  std::string text;
  for (nb::handle item : value) text += (text.empty() ? "" : ",") + nb::cast<std::string>(nb::str(item));
  return text;
}

std::map<std::string, std::string> option_texts(const nb::kwargs& given) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : given) texts[nb::cast<std::string>(name)] = option_text(value);
  return texts;
}

/// One option of any configuration, for Python.
struct OptionInfo {
  std::string name, type, standard;
  std::vector<std::string> choices;
  std::string metavar, help, group;
};

template <typename C>
std::vector<OptionInfo> option_infos(const std::vector<Option<C>>& options) {
  std::vector<OptionInfo> infos;
  for (const Option<C>& o : options) {
    infos.push_back({o.name, name_of(o.type), o.get(C{}), o.choices, o.metavar, o.help, name_of(o.group)});
  }
  return infos;
}

nb::object to_python(const Event& event) { return nb::module_::import_("json").attr("loads")(event.dump()); }

/// Calls Python from within the runtime: an exception there, Ctrl-C too, is kept for later.
class Callback {
 public:
  /// False where Python raised, now or before.
  template <typename Body>
  bool call(const Body& body) {
    nb::gil_scoped_acquire acquired;
    if (raised_) return false;
    try {
      body();
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      raised_ = std::current_exception();
    }
    return !raised_;
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::exception_ptr raised_;
};

nb::dict run_training(const std::string& bundle, const TrainConfig& config, const RunPaths& paths,
                      const nb::object& on_event) {
  Callback callback;
  StopRequest stop;
  Event done;
  try {
    nb::gil_scoped_release released;
    Model model(bundle);
    Run run(model, config, paths, [&](const Event& event) {
      const bool went_on = callback.call([&] {
        if (!on_event.is_none()) on_event(to_python(event));
      });
      if (!went_on) stop.cancel();
      done = event;  // the last one of all
    });
    while (run.step(stop)) {
    }
  } catch (const Error&) {  // by what the callback asked for, or whatever came after
    callback.rethrow();
    throw;
  }
  callback.rethrow();
  return nb::cast<nb::dict>(to_python(done));
}

std::vector<int64_t> generate(Generator& generator, const std::vector<int64_t>& prompt, const GenerateConfig& config,
                              const nb::object& on_token) {
  Callback callback;
  std::vector<int64_t> answer;
  {
    Working working(generator.model());
    answer = generator.generate(prompt, config, [&](int64_t token) {
      bool go_on = true;
      const bool went_on = callback.call([&] {
        if (!on_token.is_none()) go_on = !on_token(token).is(nb::bool_(true));
      });
      return went_on && go_on;
    });
  }
  callback.rethrow();
  return answer;
}

}  // namespace
}  // namespace mft

NB_MODULE(_core, m) {
  using namespace mft;
  using namespace nb::literals;
  m.doc() = "The mobile-ft training runtime.";
  start_executorch();  // kernels that run without a program would have it log

  const nb::exception<Error> failure(m, "RuntimeFailure", PyExc_ValueError);
  nb::exception<Busy>(m, "BusyError", failure);

  nb::class_<OptionInfo>(m, "Option", "One option of a run or of generation, as every front end shows it.")
      .def_ro("name", &OptionInfo::name)
      .def_ro("type", &OptionInfo::type, "integer, number, text, choice, size or integers")
      .def_ro("default", &OptionInfo::standard, "as text; empty where unset")
      .def_ro("choices", &OptionInfo::choices)
      .def_ro("metavar", &OptionInfo::metavar)
      .def_ro("help", &OptionInfo::help)
      .def_ro("group", &OptionInfo::group, "step, which plans depend on, or run");
  m.def("trust_key", &trust_key, nb::arg("pem"), "From now on bundles have to be signed with this public key.");
  m.def("instruction_set", [] { return std::string(kernels().isa); }, "Whose kernels compute.");
  m.def("instruction_sets", &instruction_sets, "Those that this machine has, the best last.");
  m.def(
      "renamed",
      [] {
        std::map<std::string, std::string> names;
        for (const Renamed& renamed : kRenamed) names[renamed.before] = renamed.now;
        return names;
      },
      "{name before: name now} of what has been renamed.");
  m.def("train_options", [] { return option_infos(train_options()); }, "All options of TrainConfig.");
  m.def("data_options", [] { return option_infos(data_options()); }, "All options of DataConfig.");
  m.def("generate_options", [] { return option_infos(generate_options()); }, "All options of GenerateConfig.");

  nb::class_<Model>(m, "Model", "A bundle, ready to run; weights are verified as they are first used.")
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
            if (model.claimed()) fail("a trainer works on this model; open the bundle again for something else");
            model.use_adapter(on);
          },
          "on"_a, "Off: the model as it was exported computes.")
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

  nb::class_<TokenFile>(m, "TokenFile", "A token file, checked.")
      .def(nb::init<const std::string&, int64_t>(), "path"_a, "vocab_size"_a)
      .def_prop_ro("sequences", &TokenFile::sequences);

  nb::class_<TrainConfig>(m, "TrainConfig", "Options of a run by name: those of train_options().")
      .def(
          "__init__",
          [](TrainConfig* self, const nb::kwargs& given) {
            new (self) TrainConfig(make_train_config(option_texts(given)));
          },
          nb::sig("def __init__(self, **options: object) -> None"))
      .def("options", &options_of, "{name: text} of all options.")
      .def_rw("offload_folder", &TrainConfig::offload_folder,
              "Where a Trainer may offload checkpoints to; '': nowhere.")
      .def(
          "select",
          [](const TrainConfig& c, int64_t step, int64_t count, const std::vector<double>& drop_rates) {
            if (c.epochs > 0)
              fail("epochs ", c.epochs, ": what is selected depends on the number of steps; give steps");
            Schedule schedule = c.schedule;
            schedule.steps = c.steps;
            schedule.drop_rates = drop_rates;
            const auto is_rate = [](double rate) { return rate >= 0 && rate <= 1; };
            if (!drop_rates.empty() && static_cast<int64_t>(drop_rates.size()) != count) fail("as many rates as units");
            if (!std::all_of(drop_rates.begin(), drop_rates.end(), is_rate)) fail("drop rates must be 0 to 1");
            return schedule.select(step, count);
          },
          "step"_a, "count"_a, "drop_rates"_a = std::vector<double>{},
          "Which of so many layers, or units of dropbp, are trained at `step`, counted from 0.");
  m.def("allocate_drop_rates", &allocate_drop_rates, "sensitivities"_a, "flops"_a, "target"_a,
        "dropbp's rates of units of these sensitivities and operations.");

  nb::class_<DataConfig>(m, "DataConfig", "How rows become tokens, by name: the options of data_options().")
      .def(
          "__init__",
          [](DataConfig* self, const nb::kwargs& given) {
            new (self) DataConfig();
            for (const auto& [name, text] : option_texts(given)) set_option(data_options(), *self, name, text);
          },
          nb::sig("def __init__(self, **options: object) -> None"));

  register_text(m);

  nb::class_<GenerateConfig>(m, "GenerateConfig", "Options of generation by name: those of generate_options().")
      .def(
          "__init__",
          [](GenerateConfig* self, const std::vector<int64_t>& stop_tokens, const nb::kwargs& given) {
            new (self) GenerateConfig(make_generate_config(option_texts(given)));
            self->stop_tokens = stop_tokens;
          },
          "stop_tokens"_a = std::vector<int64_t>{}, "given"_a,
          nb::sig("def __init__(self, stop_tokens: Sequence[int] = ..., **options: object) -> None"));

  nb::class_<Generator>(m, "Generator", "Generates from a prepared Model; holds what it computed, so a chat goes on.")
      .def(nb::init<Model&>(), "model"_a, nb::keep_alive<1, 2>())
      .def("generate", &generate, "prompt"_a, "config"_a, "on_token"_a = nb::none(),
           "The answer's tokens; `on_token` hears each as it comes and ends the answer by returning True.")
      .def_prop_ro_static(
          "prompt_tokens", [](nb::handle) { return Generator::kPromptTokens; },
          "Tokens to prepare the model for, or its max_seq_len where that is less.");

  nb::class_<Trainer>(m, "Trainer", "The training loop on one Model, which is its alone.")
      .def(
          "__init__",
          [](Trainer* self, Model& model, const TrainConfig& config, const std::string& adapter) {
            Working working(model);
            new (self) Trainer(model, config, adapter);
          },
          "model"_a, "config"_a, "adapter"_a = "", nb::keep_alive<1, 2>())
      .def(
          "step",
          [](Trainer& trainer, const TokenFile& data) {
            const StepResult r = [&] {
              Working working(trainer.model());
              return trainer.step(data);
            }();
            nb::dict result;
            result["step"] = r.step;
            result["loss"] = r.loss;
            result["grad_norm"] = r.grad_norm;
            result["lr"] = r.lr;
            result["tokens"] = r.tokens;
            result["backward_units"] = r.backward_units;
            return result;
          },
          "data"_a)
      .def(
          "accumulate",
          [](Trainer& trainer, const Tokens& tokens, const Tokens& targets, const Tokens& positions,
             const std::vector<bool>& layers, bool first, const std::vector<float>& weights) {
            Batch batch;
            batch.tokens.assign(tokens.data(), tokens.data() + tokens.shape(0));
            batch.targets.assign(targets.data(), targets.data() + targets.shape(0));
            batch.positions.assign(positions.data(), positions.data() + positions.shape(0));
            batch.weights = weights;
            if (targets.shape(0) != tokens.shape(0)) fail("tokens and targets must have the same length");
            if (!weights.empty() && weights.size() != tokens.shape(0)) fail("as many weights as tokens are wanted");
            check_tokens(trainer.model(), tokens, positions);
            Working working(trainer.model());
            return trainer.accumulate(batch, layers, first).loss;
          },
          "tokens"_a, "targets"_a, "positions"_a, "layers"_a, "first"_a = true, "weights"_a = std::vector<float>{},
          "Summed loss of one micro-batch; leaves the summed gradients of the selected layers in gradients().")
      .def(
          "gradients",
          [](const Trainer& trainer) {
            const auto call = trainer.model().begin_call();
            return tensors(trainer.model(), trainer.lora_train(), [&](size_t unit) { return trainer.gradients(unit); });
          },
          "Gradients of what is trained of the selected layers by PEFT name, copied.")
      .def(
          "validate",
          [](Trainer& trainer, const TokenFile& data) {
            Working working(trainer.model());
            const LossSum sum = trainer.validate(data);
            return std::make_pair(sum.loss, sum.count);
          },
          "data"_a, "Summed loss of a token file and the number of its targets, or pairs.")
      .def(
          "save_checkpoint",
          [](const Trainer& trainer, const std::string& folder, const TokenFile& data) {
            Working working(trainer.model());
            trainer.save_checkpoint(folder, data);
          },
          "folder"_a, "data"_a)
      .def(
          "resume",
          [](Trainer& trainer, const std::string& folder, const TokenFile& data) {
            Working working(trainer.model());
            trainer.resume(folder, data);
          },
          "folder"_a, "data"_a)
      .def_prop_ro("losses",
                   [](const Trainer& trainer) {
                     const auto call = trainer.model().begin_call();
                     return trainer.losses();
                   })
      .def_prop_ro(
          "backward_runs",
          [](const Trainer& trainer) {
            const auto call = trainer.model().begin_call();
            return trainer.backward_runs();
          },
          "How often each unit ran its backward.")
      .def_prop_ro(
          "stored",
          [](const Trainer& trainer) {
            std::map<std::string, int64_t> stored;
            const Plan& plan = trainer.plan();
            for (size_t g = 0; g < plan.groups.size(); ++g) stored[plan.groups[g].name] = plan.stored[g];
            return stored;
          },
          "{group: units that store their activations}.")
      .def_prop_ro(
          "plan",
          [](const Trainer& trainer) {
            std::map<std::string, uint64_t> components;
            for (size_t c = 0; c < kComponents; ++c) {
              components[name_of(static_cast<Component>(c))] = trainer.plan().bytes[c];
            }
            return components;
          },
          "{component: bytes} of the memory plan.");

  m.def("resumed_options", &resumed_options, "folder"_a, "given"_a,
        "Options of a run that resumes from `folder`: those given, and the checkpoint's where none is given.");
  m.def(
      "run_training",
      [](const std::string& bundle, const TrainConfig& config, const std::string& data, const std::string& valid,
         const std::string& adapter, const std::string& out, bool resume, const nb::object& on_event) {
        return run_training(bundle, config, {data, valid, adapter, out, "", resume}, on_event);
      },
      "bundle"_a, "config"_a, "data"_a, "valid"_a = "", "adapter"_a = "", "out"_a = ".", "resume"_a = false,
      "on_event"_a = nb::none(),
      "One training run in this process: what mft-run does, with its events as dictionaries; returns the last. An "
      "exception of `on_event`, or Ctrl-C, ends it after the step, saved, and is raised then.");
  m.def(
      "evaluate",
      [](Model& model, const std::string& adapter, const std::string& data, const nb::object& progress) {
        Callback callback;
        LossSum sum;
        try {
          Working working(model);
          sum = evaluate_file(model, adapter, data, [&](int64_t done, int64_t total) {
            const bool went_on = callback.call([&] {
              if (!progress.is_none()) progress(done, total);
            });
            if (!went_on) fail("stopped by its callback");
          });
        } catch (const Error&) {
          callback.rethrow();
          throw;
        }
        return std::make_pair(sum.loss / static_cast<double>(sum.count), sum.count);
      },
      "model"_a, "adapter"_a, "data"_a, "progress"_a = nb::none(),
      "Mean loss and target count of a token file, with an adapter folder ('' for the bundle's own).");
  m.def(
      "quantize",
      [](const Matrix& weight, const std::string& format, std::optional<Importance> importance) {
        return quantized(weight, format, importance ? importance->data() : nullptr,
                         importance ? importance->size() : weight.shape(1));
      },
      "weight"_a, "format"_a, "importance"_a = nb::none(),
      "W [rows, cols] packed in a format (docs/reference/bundle_format.md), with scales found by error search; "
      "`importance` [cols], above 0, weighs the errors of columns.");
  m.def(
      "process_memory",
      [] {
        const ProcessMemory memory = process_memory();
        return std::map<std::string, uint64_t>{
            {"rss", memory.rss}, {"anon", memory.anon}, {"peak_rss", memory.peak_rss}};
      },
      "This process's memory in bytes, as the kernel says.");

#ifdef MFT_PYTHON_KERNELS
  register_kernels(m.def_submodule("kernels"));
#endif
}
