/// Python view of the runtime: the same Model and Trainer as mft-run's, for notebooks and tests. numpy arrays only.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "runtime/core/error.h"
#include "runtime/core/model.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/trainer.h"
#include "runtime/python/kernels.h"

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

/// Logits [T, vocab_size] of a sequence.
Array logits(Model& model, const Tokens& tokens, const Tokens& positions) {
  check_tokens(model, tokens, positions);
  const int64_t t = static_cast<int64_t>(tokens.shape(0));
  const size_t hidden = static_cast<size_t>(model.bundle().hidden_size);
  const size_t vocab = static_cast<size_t>(model.bundle().vocab_size);
  std::vector<float> x(tokens.shape(0) * hidden), y(x.size()), out(tokens.shape(0) * vocab);
  model.embed(tokens.data(), t, x.data());
  for (size_t u = 0; u < model.bundle().units.size(); ++u) {
    model.forward(u, x.data(), positions.data(), t, y.data());
    x.swap(y);
  }
  // One row at a time: the model is prepared for that much scratch only.
  for (size_t i = 0; i < tokens.shape(0); ++i) model.logits(x.data() + i * hidden, 1, out.data() + i * vocab);
  return array(std::move(out), {tokens.shape(0), vocab});
}

/// {PEFT tensor name: float32 array} of what `unit_values(unit)` holds in the layout's order; a null unit is left out.
template <typename UnitValues>
std::map<std::string, Array> tensors(const Model& model, const UnitValues& unit_values) {
  std::map<std::string, Array> result;
  for (size_t u = 0; u < model.layout().units.size(); ++u) {
    const float* from = unit_values(u);
    if (from == nullptr) continue;
    for (const AdapterTensor& t : model.layout().units[u]) {
      const float* first = from + (t.offset - model.layout().range(u).begin);
      std::vector<float> values(first, first + t.size());
      result.emplace(t.name, array(std::move(values), {static_cast<size_t>(t.rows), static_cast<size_t>(t.cols)}));
    }
  }
  return result;
}

TrainConfig train_config(int64_t steps, int64_t seq_len, int64_t batch_size, int64_t grad_accum, double lr,
                         const std::string& lr_scheduler, int64_t warmup_steps, double weight_decay,
                         double max_grad_norm, const std::string& schedule, const std::string& selection, double ratio,
                         const std::vector<int64_t>& suffix_depths, const std::string& unselected,
                         const std::string& backward, const std::string& optimizer, uint64_t seed, uint64_t budget,
                         const std::string& spill_folder) {
  const auto choice = [](const char* name, const std::string& value, const std::vector<std::string>& choices) {
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == value) return static_cast<int>(i);
    }
    fail(name, " ", value, " is not known");
  };
  TrainConfig c;
  c.steps = steps;
  c.seq_len = seq_len;
  c.batch_size = batch_size;
  c.grad_accum = grad_accum;
  c.lr = lr;
  c.cosine = choice("lr_scheduler", lr_scheduler, {"cosine", "constant"}) == 0;
  c.warmup_steps = warmup_steps;
  c.weight_decay = weight_decay;
  c.max_grad_norm = max_grad_norm;
  c.skip_unselected = choice("unselected", unselected, {"momentum", "skip"}) == 1;
  c.schedule.kind = static_cast<Schedule::Kind>(choice("schedule", schedule, {"full", "lcsb", "suffix"}));
  c.schedule.selection =
      static_cast<Schedule::Selection>(choice("selection", selection, {"contiguous", "strided", "random"}));
  c.schedule.ratio = ratio;
  c.schedule.suffix_depths = suffix_depths;
  c.backward = static_cast<Backward>(choice("backward", backward, {"auto", "store", "recompute"}));
  c.optimizer = static_cast<Optimizer>(choice("optimizer", optimizer, {"adamw", "adamw8bit"}));
  c.schedule.seed = seed;
  c.seed = seed;
  c.budget = budget;
  c.spill_folder = spill_folder;
  return c;
}

}  // namespace
}  // namespace mft

NB_MODULE(_core, m) {
  using namespace mft;
  using namespace nb::literals;
  m.doc() = "The mobile-ft training runtime.";

  nb::exception<Error>(m, "RuntimeFailure", PyExc_ValueError);

  nb::class_<Model>(m, "Model", "A bundle, verified and ready to run.")
      .def(nb::init<const std::string&>(), "bundle"_a)
      .def("prepare", &Model::prepare, "adapter"_a, "tokens"_a,
           "Loads an adapter folder ('' for the bundle's own) and makes room for calls of `tokens` tokens.")
      .def("logits", &logits, "tokens"_a, "positions"_a, "Logits float32 [T, vocab_size]; int64 inputs [T].")
      .def(
          "parameters",
          [](const Model& model) {
            if (model.parameters() == nullptr) fail("the model is not prepared; call prepare first");
            return tensors(model, [&](size_t unit) { return model.parameters() + model.layout().range(unit).begin; });
          },
          "LoRA parameters by PEFT name, copied.");

  nb::class_<TokenFile>(m, "TokenFile", "A token file, checked.")
      .def(nb::init<const std::string&, int64_t>(), "path"_a, "vocab_size"_a)
      .def_prop_ro("sequences", &TokenFile::sequences);

  nb::class_<TrainConfig>(m, "TrainConfig", "Options of a run; mft-run's, with underscores.")
      .def(
          "__init__",
          [](TrainConfig* self, int64_t steps, int64_t seq_len, int64_t batch_size, int64_t grad_accum, double lr,
             const std::string& lr_scheduler, int64_t warmup_steps, double weight_decay, double max_grad_norm,
             const std::string& schedule, const std::string& selection, double ratio,
             const std::vector<int64_t>& suffix_depths, const std::string& unselected, const std::string& backward,
             const std::string& optimizer, uint64_t seed, uint64_t budget, const std::string& spill_folder) {
            new (self) TrainConfig(train_config(steps, seq_len, batch_size, grad_accum, lr, lr_scheduler, warmup_steps,
                                                weight_decay, max_grad_norm, schedule, selection, ratio, suffix_depths,
                                                unselected, backward, optimizer, seed, budget, spill_folder));
          },
          "steps"_a = 100, "seq_len"_a = 256, "batch_size"_a = 1, "grad_accum"_a = 1, "lr"_a = 2e-4,
          "lr_scheduler"_a = "cosine", "warmup_steps"_a = 0, "weight_decay"_a = 0.0, "max_grad_norm"_a = 1.0,
          "schedule"_a = "full", "selection"_a = "random", "ratio"_a = 0.5, "suffix_depths"_a = std::vector<int64_t>{},
          "unselected"_a = "momentum", "backward"_a = "auto", "optimizer"_a = "adamw", "seed"_a = 0, "budget"_a = 0,
          "spill_folder"_a = "")
      .def(
          "select", [](const TrainConfig& c, int64_t step, int64_t layers) { return c.schedule.select(step, layers); },
          "step"_a, "layers"_a, "Which layers get backward at `step`, counted from 0.");

  nb::class_<Trainer>(m, "Trainer", "The training loop on one Model, which must outlive it.")
      .def(nb::init<Model&, const TrainConfig&, const std::string&>(), "model"_a, "config"_a, "adapter"_a = "",
           nb::keep_alive<1, 2>())
      .def(
          "step",
          [](Trainer& trainer, const TokenFile& data) {
            const StepResult r = trainer.step(data);
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
             const std::vector<bool>& layers, bool first) {
            Batch batch;
            batch.tokens.assign(tokens.data(), tokens.data() + tokens.shape(0));
            batch.targets.assign(targets.data(), targets.data() + targets.shape(0));
            batch.positions.assign(positions.data(), positions.data() + positions.shape(0));
            if (targets.shape(0) != tokens.shape(0)) fail("tokens and targets must have the same length");
            check_tokens(trainer.model(), tokens, positions);
            return trainer.accumulate(batch, layers, first);
          },
          "tokens"_a, "targets"_a, "positions"_a, "layers"_a, "first"_a = true,
          "Summed loss of one micro-batch; leaves the summed gradients of the selected layers in gradients().")
      .def(
          "gradients",
          [](const Trainer& trainer) {
            return tensors(trainer.model(), [&](size_t unit) { return trainer.gradients(unit); });
          },
          "Gradients of the selected layers by PEFT name, copied.")
      .def("save_checkpoint", &Trainer::save_checkpoint, "folder"_a, "data"_a)
      .def("resume", &Trainer::resume, "folder"_a, "data"_a)
      .def_prop_ro("losses", &Trainer::losses)
      .def_prop_ro("backward_runs", &Trainer::backward_runs, "How often each unit ran its backward.")
      .def_prop_ro(
          "plan",
          [](const Trainer& trainer) {
            std::map<std::string, uint64_t> components;
            for (const Plan::Component& c : trainer.plan().components) components[c.name] = c.bytes;
            return components;
          },
          "{component: bytes} of the memory plan.");

  m.def(
      "evaluate", [](Model& model, const TokenFile& data) { return evaluate(model, data, [](int64_t, int64_t) {}); },
      "model"_a, "data"_a, "Summed loss and target count of a token file.");
  m.def(
      "process_memory",
      [] {
        const ProcessMemory memory = process_memory();
        return std::map<std::string, uint64_t>{
            {"rss", memory.rss}, {"anon", memory.anon}, {"peak_rss", memory.peak_rss}};
      },
      "This process's memory in bytes, as the kernel says.");

  register_kernels(m.def_submodule("kernels"));
}
