#include "runtime/python/options.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/bundle/bundle.h"
#include "runtime/config/auto_lr.h"
#include "runtime/config/generate_config.h"
#include "runtime/config/learn_config.h"
#include "runtime/config/train_config.h"

namespace nb = nanobind;

namespace mft {
namespace {

/// A Python value as an option's text: numbers as they print, lists with commas between.
std::string option_text(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) fail(nb::cast<std::string>(nb::str(value)), ": must be a number or text");
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

}  // namespace

void register_options(nb::module_ m) {
  using namespace nb::literals;
  nb::class_<OptionInfo>(m, "Option", "One option of a run or of generation, as every front end shows it.")
      .def_ro("name", &OptionInfo::name)
      .def_ro("type", &OptionInfo::type, "integer, number, text, choice, size or integers")
      .def_ro("default", &OptionInfo::standard, "as text; empty where unset")
      .def_ro("choices", &OptionInfo::choices)
      .def_ro("metavar", &OptionInfo::metavar)
      .def_ro("help", &OptionInfo::help)
      .def_ro("group", &OptionInfo::group, "step, which plans depend on, or run");
  m.def("train_options", [] { return option_infos(train_options()); }, "All options of TrainConfig.");
  m.def("learn_options", [] { return option_infos(learn_options()); }, "All options of a night of learning.");
  m.def("own_learn_options", [] { return option_infos(own_learn_options()); }, "Those that training does not have.");
  m.def("data_options", [] { return option_infos(data_options()); }, "All options of DataConfig.");
  m.def("generate_options", [] { return option_infos(generate_options()); }, "All options of GenerateConfig.");

  nb::class_<TrainConfig>(m, "TrainConfig", "Options of a run by name: those of train_options().")
      .def(
          "__init__",
          [](TrainConfig* self, const nb::kwargs& given) {
            new (self) TrainConfig(make_train_config(option_texts(given)));
          },
          nb::sig("def __init__(self, **options: object) -> None"))
      .def(
          "options", [](const TrainConfig& config) { return options_of(config); }, "{name: text} of all options.")
      .def(
          "learning_rate",
          [](const TrainConfig& c, const std::string& bundle) {
            return c.lr.value ? *c.lr.value : auto_lr(c, base_lr(Bundle(bundle)));
          },
          "bundle"_a, "The peak learning rate of a run with the bundle in this folder.")
      .def_rw("offload_folder", &TrainConfig::offload_folder,
              "Folder to which a Trainer may offload checkpoints; '': no offloading.")
      .def(
          "select",
          [](const TrainConfig& c, int64_t step, int64_t count, const std::vector<double>& drop_rates) {
            if (c.epochs > 0) fail("epochs ", c.epochs, ": the selection depends on the number of steps; set steps");
            Schedule schedule = c.schedule;
            schedule.steps = c.steps;
            schedule.drop_rates = drop_rates;
            const auto is_rate = [](double rate) { return rate >= 0 && rate <= 1; };
            if (!drop_rates.empty() && static_cast<int64_t>(drop_rates.size()) != count)
              fail("drop_rates must have one rate for each unit");
            if (!std::all_of(drop_rates.begin(), drop_rates.end(), is_rate)) fail("drop rates must be 0 to 1");
            return schedule.select(step, count);
          },
          "step"_a, "count"_a, "drop_rates"_a = std::vector<double>{},
          "Flags of `count` layers, or units for dropbp, that are trained at `step`, which counts from 0.");
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

  nb::class_<GenerateConfig>(m, "GenerateConfig", "Options of generation by name: those of generate_options().")
      .def(
          "__init__",
          [](GenerateConfig* self, const std::vector<int64_t>& stop_tokens, const nb::kwargs& given) {
            new (self) GenerateConfig(make_generate_config(option_texts(given)));
            self->stop_tokens = stop_tokens;
          },
          "stop_tokens"_a = std::vector<int64_t>{}, "given"_a,
          nb::sig("def __init__(self, stop_tokens: Sequence[int] = ..., **options: object) -> None"));
}

}  // namespace mft
