#include "runtime/python/training.h"

#include "runtime/python/calls.h"
#include "runtime/python/tensors.h"
#include "runtime/train/run.h"

namespace mft {
namespace {

nb::object to_python(const Event& event) { return nb::module_::import_("json").attr("loads")(event.dump()); }

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
  } catch (const Stopped&) {  // by what the callback asked for; if saving fails, that error is the one to tell
    callback.rethrow();
    throw;
  }
  callback.rethrow();
  return nb::cast<nb::dict>(to_python(done));
}

}  // namespace

void register_training(nb::module_ m) {
  using namespace nb::literals;
  nb::class_<TokenFile>(m, "TokenFile", "A token file, checked.")
      .def(nb::init<const std::string&, int64_t>(), "path"_a, "vocab_size"_a)
      .def_prop_ro("sequences", &TokenFile::sequences);

  nb::class_<Trainer>(m, "Trainer", "The training loop on one Model, which nothing else may use meanwhile.")
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
             const std::vector<bool>& layers, bool first, const std::vector<float>& weights,
             const std::vector<uint8_t>& liked) {
            Batch batch;
            batch.tokens.assign(tokens.data(), tokens.data() + tokens.shape(0));
            batch.targets.assign(targets.data(), targets.data() + targets.shape(0));
            batch.positions.assign(positions.data(), positions.data() + positions.shape(0));
            batch.weights = weights;
            batch.liked = liked;
            if (targets.shape(0) != tokens.shape(0)) fail("tokens and targets must have the same length");
            if (!weights.empty() && weights.size() != tokens.shape(0))
              fail("weights must have one number for each token");
            if (!liked.empty() && liked.size() != tokens.shape(0)) fail("liked must have one flag for each token");
            check_tokens(trainer.model(), tokens, positions);
            Working working(trainer.model());
            return trainer.accumulate(batch, layers, first).loss;
          },
          "tokens"_a, "targets"_a, "positions"_a, "layers"_a, "first"_a = true, "weights"_a = std::vector<float>{},
          "liked"_a = std::vector<uint8_t>{},
          "Summed loss of one micro-batch; leaves the summed gradients of the selected layers in gradients().")
      .def(
          "gradients",
          [](const Trainer& trainer) {
            const auto call = trainer.model().begin_call();
            return tensors(trainer.model(), trainer.lora_train(), [&](size_t unit) { return trainer.gradients(unit); });
          },
          "Gradients of the trained LoRA parameters of the selected layers by PEFT name, copied.")
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
        "Options of a run that resumes from `folder`: the given ones, and those of the checkpoint for the others.");
  m.def(
      "run_training",
      [](const std::string& bundle, const TrainConfig& config, const std::string& data, const std::string& valid,
         const std::string& adapter, const std::string& out, bool resume, const nb::object& on_event) {
        return run_training(bundle, config, {data, valid, adapter, out, "", resume, "", false}, on_event);
      },
      "bundle"_a, "config"_a, "data"_a, "valid"_a = "", "adapter"_a = "", "out"_a = ".", "resume"_a = false,
      "on_event"_a = nb::none(),
      "One training run in this process: what mft-run does, with its events as dictionaries; returns the last. An "
      "exception of `on_event`, or Ctrl-C, ends it after the step, saved, and is raised then, unless saving fails.");
}

}  // namespace mft
