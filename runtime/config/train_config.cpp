#include "runtime/config/train_config.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/config/arithmetic.h"
#include "runtime/config/auto_lr.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

using C = TrainConfig;

constexpr int64_t kMostSteps = 1000000000;
// Default warm-up, from docs/quality.md. Shorter runs than those measured there warm up for fewer steps.
constexpr int64_t kWarmupSteps = 5, kStepsPerWarmupStep = 10;

/// The option `schedule` uses the table of rules.
Option<C> schedule_option() {
  Option<C> option{
      "schedule", OptionType::kChoice, {}, "", "which layers each step trains", OptionGroup::kStep, true, {}, {}};
  for (const ScheduleRule* rule : schedule_rules()) option.choices.push_back(rule->name);
  option.set = [](C& c, const std::string& text) {
    std::string all;
    for (const ScheduleRule* rule : schedule_rules()) {
      if (text == rule->name) {
        c.schedule.rule = rule;
        return;
      }
      all += (all.empty() ? "" : ", ") + std::string(rule->name);
    }
    fail("must be one of ", all);
  };
  option.get = [](const C& c) { return std::string(c.schedule.rule->name); };
  return option;
}

/// One seed sets both the order of the data and random selections.
Option<C> seed_option() {
  Option<C> made = option<C>(
      "seed", [](C& c) -> auto& { return c.seed; }, OptionGroup::kRun, true,
      "random seed for data order and layer selection");
  made.set = [](C& c, const std::string& text) {
    read_value(text, c.seed);
    c.schedule.seed = static_cast<uint64_t>(c.seed);
  };
  return made;
}

/// Converts a data option to an option of the run.
Option<C> option_of_run(const Option<DataConfig>& of_data) {
  Option<C> made{of_data.name,           of_data.type, of_data.choices,
                 of_data.metavar,        of_data.help, of_data.group,
                 of_data.decides_result, {},           {}};
  made.set = [&of_data](C& c, const std::string& text) { of_data.set(c.data, text); };
  made.get = [&of_data](const C& c) { return of_data.get(c.data); };
  return made;
}

std::vector<Option<C>> make_options() {
  constexpr OptionGroup kStep = OptionGroup::kStep, kRun = OptionGroup::kRun;
#define MFT_OPTION(name, member, group, decides, help) \
  option<C>(name, [](C& c) -> auto& { return c.member; }, group, decides, help)
  std::vector<Option<C>> options = {
      MFT_OPTION("seq_len", seq_len, kStep, true, "tokens per sequence"),
      MFT_OPTION("batch_size", batch_size, kStep, true, "sequences per batch"),
      MFT_OPTION("grad_accum", grad_accum, kStep, true, "batches per optimizer step (gradient accumulation)"),
      schedule_option(),
      MFT_OPTION("ratio", schedule.ratio, kStep, true,
                 "share of layers trained per step (dropbp: of attention and MLP units; freeze: average over the run)"),
      MFT_OPTION("selection", schedule.selection, kStep, true, "how layers are selected (lcsb only)"),
      MFT_OPTION(
          "suffix_depths", schedule.suffix_depths, kStep, true,
          "number of top layers per step, cycled (suffix only); unset: 0.5, 1, 1.5 and 1 times --ratio of all layers. "
          "Memory is planned for the largest number"),
      MFT_OPTION("period", schedule.period, kStep, true, "steps between layer selections (lisa only)"),
      MFT_OPTION(
          "backward", backward, kStep, false,
          "store activations, recompute them (activation checkpointing), or auto: the fastest combination that fits "
          "the budget; without a budget, recompute"),
      MFT_OPTION("lora_train", lora_train, kStep, true,
                 "LoRA matrices to train: A and B, or only B; a frozen A needs no gradient and optimizer memory"),
      MFT_OPTION("proximal_mu", proximal_mu, kStep, true,
                 "FedProx: weight mu of the loss term mu / 2 * |adapter - initial adapter|^2; 0: off"),
      MFT_OPTION("optimizer", optimizer, kStep, true,
                 "adamw8bit stores AdamW's moments in 8 bits, a quarter of the memory"),
      MFT_OPTION("max_grad_norm", max_grad_norm, kStep, true,
                 "gradient clipping norm; 0: no clipping, which reduces gradient memory to one unit"),
      MFT_OPTION(
          "loss", loss, kStep, true,
          "sft: cross-entropy; dpo, ipo, orpo or simpo: on chosen and rejected answers; kto: on answers with a label"),
      MFT_OPTION("eval_every", eval_every, kStep, false, "steps between validations; 0: no validation"),
      MFT_OPTION("budget", budget, kStep, false,
                 "memory limit, such as 512MB, 1GiB or a number of bytes; unset: no limit"),
      // Resolved by a run and recorded in run.yaml: the units per group that store activations, the tokens per MLP
      // call (0: as many as the budget allows), and the arithmetic, which must be the same when a run is repeated.
      MFT_OPTION("stored_units", stored_units, kStep, false, ""),
      MFT_OPTION("mlp_tokens", mlp_tokens, kStep, false, ""),
      MFT_OPTION(
          "compute", compute, kStep, true,
          "arithmetic of linear layers and attention; auto: int8 if the CPU has int8 dot products, else float32"),
      MFT_OPTION("threads", threads, kStep, false, "number of threads; 0: one per core (on phones: per big core)"),
      MFT_OPTION("steps", steps, kRun, true, "optimizer steps"),
      MFT_OPTION("epochs", epochs, kRun, false, "passes over the data, instead of --steps; may be a fraction"),
      MFT_OPTION("lr", lr, kRun, true, "peak learning rate; auto: by the model, LoRA, schedule and loss"),
      MFT_OPTION("lr_scheduler", lr_scheduler, kRun, true,
                 "learning rate schedule after warm-up: decay to 0, or constant"),
      MFT_OPTION("warmup_steps", warmup_steps, kRun, true,
                 "learning rate warm-up steps; unset: 5, but at most a tenth of all steps"),
      MFT_OPTION("warmup_ratio", warmup_ratio, kRun, false,
                 "warm-up as a share of all steps, instead of --warmup-steps"),
      MFT_OPTION("weight_decay", weight_decay, kRun, true, "AdamW weight decay"),
      MFT_OPTION("unselected", unselected, kRun, true,
                 "how unselected layers are updated: by momentum, or not at all (lcsb and suffix only)"),
      MFT_OPTION("cache_prefix", cache_prefix, kRun, true,
                 "cache the output of frozen layers on disk, so that later epochs skip them (freeze only); needs "
                 "4 bytes * hidden size of disk space per token of the data"),
      MFT_OPTION("beta", beta, kRun, true,
                 "dpo, ipo, kto: strength of the penalty for moving away from the base model; orpo: weight of the odds "
                 "ratio; simpo: factor of the reward"),
      MFT_OPTION("label_smoothing", label_smoothing, kRun, true,
                 "assumed share of pairs whose answers are swapped, below 0.5 (dpo and simpo only)"),
      MFT_OPTION("simpo_gamma", simpo_gamma, kRun, true, "target margin of the rewards (simpo only)"),
      MFT_OPTION(
          "sft_weight", sft_weight, kRun, true,
          "weight of the cross-entropy of chosen or liked answers, added to the loss of feedback; unset: 1 for orpo, "
          "0 for the others"),
      MFT_OPTION("save_every", save_every, kRun, false, "steps between checkpoints"),
      MFT_OPTION("patience", patience, kRun, false,
                 "early stopping: validations without improvement before the run ends; 0: off"),
      seed_option(),
      MFT_OPTION("arithmetic", arithmetic, kRun, false, ""),
  };
#undef MFT_OPTION
  for (const Option<DataConfig>& of_data : data_options()) options.push_back(option_of_run(of_data));
  return options;
}

/// Rounds up, but not for the last bits of a product: 0.07 x 100 is a little above 7.
double rounded_up(double number) { return std::ceil(number * (1 - 1e-12)); }

/// Checks the options of losses, also whether the loss has them.
void check_loss(const C& c) {
  const auto only = [&](const char* option, double value, bool used, const char* by) {
    if (!used) fail(option, ' ', value, ": loss ", name_of(c.loss), " does not use it, only ", by);
  };
  if (!(c.beta > 0) || !std::isfinite(c.beta)) fail("beta ", c.beta, ": must be a positive number");
  if (c.beta != C().beta) only("beta", c.beta, c.loss != Loss::kSft, "losses of feedback");
  if (!(c.label_smoothing >= 0 && c.label_smoothing < 0.5)) {
    fail("label_smoothing ", c.label_smoothing, ": must be at least 0 and below 0.5");
  }
  const bool smooths = c.loss == Loss::kDpo || c.loss == Loss::kSimpo;
  if (c.label_smoothing > 0) only("label_smoothing", c.label_smoothing, smooths, "dpo and simpo");
  if (!std::isfinite(c.simpo_gamma)) fail("simpo_gamma ", c.simpo_gamma, ": must be a number");
  if (c.simpo_gamma != C().simpo_gamma) only("simpo_gamma", c.simpo_gamma, c.loss == Loss::kSimpo, "simpo");
  if (c.loss == Loss::kKto && !c.data.mask_prompt) {
    fail("mask_prompt false: loss kto compares answers, so that it cannot learn prompts");
  }
  if (!c.sft_weight) return;
  if (!(*c.sft_weight >= 0) || !std::isfinite(*c.sft_weight)) {
    fail("sft_weight ", *c.sft_weight, ": must not be negative");
  }
  only("sft_weight", *c.sft_weight, c.loss != Loss::kSft, "losses of feedback");
}

/// Refuses options that the schedule does not use. Those with their default are in every run.yaml.
void check_schedule(const C& c) {
  const Schedule& of = c.schedule;
  const Schedule standard = C().schedule;
  const auto only = [&](const char* option, const auto& value, bool used, const char* by) {
    if (!used) fail(option, ' ', value, ": schedule ", of.rule->name, " does not use it, only ", by);
  };
  const bool skips = of.rule == &kLcsb || of.rule == &kSuffix;
  if (of.ratio != standard.ratio) only("ratio", of.ratio, of.rule != &kFull, "lcsb, suffix, lisa, freeze and dropbp");
  if (of.selection != standard.selection) only("selection", name_of(of.selection), of.rule == &kLcsb, "lcsb");
  if (of.suffix_depths != standard.suffix_depths) {
    only("suffix_depths", text_of(of.suffix_depths), of.rule == &kSuffix, "suffix");
  }
  if (of.period != standard.period) only("period", of.period, of.rule == &kLisa, "lisa");
  if (c.unselected != C().unselected) only("unselected", name_of(c.unselected), skips, "lcsb and suffix");
}

/// Checks the ranges of all values that do not depend on the bundle or the data.
void check_values(const C& c) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail(name, " ", value, ": must be at least 1");
  };
  const auto not_negative = [](const char* name, auto value, const char* more = "") {
    if (!(value >= 0)) fail(name, " ", value, ": must not be negative", more);
  };
  positive("steps", c.steps);
  if (c.steps > kMostSteps) fail("steps ", c.steps, ": must be at most ", kMostSteps);
  positive("seq_len", c.seq_len);
  positive("batch_size", c.batch_size);
  positive("grad_accum", c.grad_accum);
  positive("save_every", c.save_every);
  not_negative("eval_every", c.eval_every);
  not_negative("patience", c.patience);
  not_negative("epochs", c.epochs);
  not_negative("warmup_steps", c.warmup_steps.value_or(0));
  not_negative("weight_decay", c.weight_decay);
  not_negative("max_grad_norm", c.max_grad_norm, "; 0 disables clipping");
  not_negative("seed", c.seed);
  not_negative("mlp_tokens", c.mlp_tokens);
  if (c.threads < 0 || c.threads > kMostThreads) fail("threads ", c.threads, ": must be from 0 to ", kMostThreads);
  if (!(c.warmup_ratio >= 0 && c.warmup_ratio < 1)) {
    fail("warmup_ratio ", c.warmup_ratio, ": must be at least 0 and below 1");
  }
  if (c.warmup_ratio > 0 && c.warmup_steps.value_or(0) > 0)
    fail("warmup_ratio ", c.warmup_ratio, ": set either warmup_ratio or warmup_steps");
  const double lr = c.lr.value.value_or(1);
  if (!(lr > 0) || !std::isfinite(lr)) fail("lr ", lr, ": must be a positive number");
  if (!(c.proximal_mu >= 0) || !std::isfinite(c.proximal_mu)) {
    fail("proximal_mu ", c.proximal_mu, ": must not be negative; 0 disables the proximal term");
  }
  check_loss(c);
  if (c.patience > 0 && c.eval_every == 0)
    fail("patience ", c.patience, ": requires eval_every, the number of steps between validations");
  if (c.cache_prefix && c.schedule.rule != &kFreeze)
    fail("cache_prefix: requires schedule freeze, not ", c.schedule.rule->name);
  if (!c.resumed) check_schedule(c);  // earlier versions ignored such options, but checkpoints have them
  if (!c.arithmetic.empty() && c.arithmetic != arithmetic(c)) {
    fail("arithmetic ", c.arithmetic, ": this machine computes with ", arithmetic(c),
         ", whose results differ in the last bits; remove arithmetic to accept that");
  }
}

}  // namespace

const std::vector<Option<C>>& train_options() {
  static const std::vector<Option<C>> options = make_options();
  return options;
}

C make_train_config(const std::map<std::string, std::string>& given) {
  C config;
  for (const auto& [name, text] : given) set_option(train_options(), config, name, text);
  if (config.epochs != 0 && given.count("steps")) fail("epochs ", config.epochs, ": set either steps or epochs");
  return config;
}

std::map<std::string, std::string> options_of(const C& config) {
  std::map<std::string, std::string> texts;
  for (const Option<C>& option : train_options()) texts[option.name] = option.get(config);
  if (config.epochs > 0) texts.erase("steps");
  return texts;
}

void resolve(C& c, int64_t sequences, double base_lr) {
  check_values(c);
  if (c.epochs > 0) {
    const double steps = rounded_up(c.epochs * static_cast<double>(sequences) /
                                    (static_cast<double>(c.batch_size) * static_cast<double>(c.grad_accum)));
    if (!(steps <= kMostSteps)) fail("epochs ", c.epochs, ": gives ", steps, " steps; the maximum is ", kMostSteps);
    c.steps = std::max<int64_t>(1, static_cast<int64_t>(steps));
    c.epochs = 0;
  }
  if (c.warmup_ratio > 0) {
    c.warmup_steps = static_cast<int64_t>(rounded_up(c.warmup_ratio * static_cast<double>(c.steps)));
    c.warmup_ratio = 0;
  }
  if (!c.warmup_steps) c.warmup_steps = std::min(kWarmupSteps, c.steps / kStepsPerWarmupStep);
  if (!c.lr.value) c.lr.value = auto_lr(c, base_lr);
  c.schedule.steps = c.steps;
  c.compute = compute_of(c) == Compute::kInt8 ? ComputeChoice::kInt8 : ComputeChoice::kFloat32;
}

void check(const C& c, int64_t max_seq_len) {
  check_values(c);
  if (c.seq_len > max_seq_len || c.batch_size > max_seq_len / c.seq_len) {
    fail("batch_size ", c.batch_size, " x seq_len ", c.seq_len, " tokens; the bundle's maximum is ", max_seq_len,
         "; lower them, or export the bundle again with a larger max_seq_len");
  }
}

}  // namespace mft
