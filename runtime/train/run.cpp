#include "runtime/train/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "runtime/base/file.h"
#include "runtime/config/arithmetic.h"
#include "runtime/config/auto_lr.h"
#include "runtime/platform/memory_limit.h"
#include "runtime/platform/process_memory.h"
#include "runtime/train/trace.h"

namespace mft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Event budget_of(const TrainConfig& config) {
  return config.budget > 0 ? Event(megabytes(config.budget)) : Event(nullptr);
}

double median(std::vector<float> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Event by_group(const Plan& plan, const std::function<int64_t(size_t)>& number) {
  Event numbers = Event::object();
  for (size_t g = 0; g < plan.groups.size(); ++g) numbers[plan.groups[g].name] = number(g);
  return numbers;
}

/// A digit for each unit, 1 where it was trained.
std::string trained(const StepResult& step) {
  std::string digits;
  for (const bool was : step.trained) digits += was ? '1' : '0';
  return digits;
}

Event stored_units(const Plan& plan) {
  return by_group(plan, [&](size_t g) { return plan.stored[g]; });
}

/// Why training cannot go on, empty if it can: it was asked to stop, or a memory limit was lowered meanwhile.
std::string reason_to_stop(const StopRequest& stop, const Plan& plan) {
  const std::string asked = stop.reason();
  if (!asked.empty()) return asked;
  const uint64_t limit = memory_limit();
  if (limit == 0 || limit >= plan.anonymous()) return "";
  return "the memory limit is " + std::to_string(limit / 1000000) + "MB now and this run needs " +
         std::to_string(plan.anonymous() / 1000000 + 1) + "MB that cannot be dropped";
}

/// A resumed run goes on with what decides over its last bits.
void use_again(const Resolved& resolved, TrainConfig& config) {
  if (!resolved.stored_units.empty()) {
    config.stored_units = resolved.stored_units;
    config.backward = Backward::kAuto;
  }
  config.mlp_tokens = resolved.mlp_tokens;
  config.threads = resolved.threads;
  if (config.compute == ComputeChoice::kAuto) config.compute = resolved.compute;
}

/// Where a run goes on must be what `paths` says.
const RunPaths& with_folder(const RunPaths& paths) {
  const std::string checkpoint = paths.out + kCheckpointFile;
  if (paths.resume && !file_exists(checkpoint)) fail(checkpoint, ": no such file; there is nothing to resume");
  if (!paths.resume && file_exists(checkpoint)) {
    fail(paths.out, ": contains the checkpoint of an earlier run; resume it, or choose another folder");
  }
  make_folder(paths.out);
  return paths;
}

}  // namespace

class Run::State {
 public:
  State(Model& model, const TrainConfig& config, const RunPaths& paths, EventSink emit)
      : model_(model),
        config_(config),
        paths_(with_folder(paths)),
        folder_(paths.out),
        emit_(std::move(emit)),
        data_(paths.data, model.bundle().vocab_size),
        valid_(open_valid()),
        trainer_(model, resolved(), paths.adapter, data_.sequences()) {
    trainer_.check_data(data_);
    if (valid_) {
      trainer_.check_data(*valid_);
      if (valid_->targets() == 0) fail(valid_->path(), ": no targets to validate on");
    }
    if (paths.resume) trainer_.resume(paths.out, data_);
    if (!paths.resume && !paths.moments.empty()) trainer_.take_moments(paths.moments);
    if (valid_ && trainer_.validated_on != valid_->sha256()) {
      trainer_.evaluations.clear();  // losses of other data tell nothing of these
      trainer_.validated_on = valid_->sha256();
    }
    if (!paths.trace.empty()) {
      trace_.emplace(paths.trace, trainer_);
      model_.observe([this](const auto&... call) { trace_->method(call...); });
    }
    plan_event();
    reset_peak_rss();
  }
  ~State() { model_.observe({}); }

  bool step(const StopRequest& stop) {
    if (trainer_.steps_done() > 0) stop_for(stop.reason());  // since the last step
    if (!over()) {
      train();
      const int64_t done = trainer_.steps_done();
      if (valid_ && (done % config_.eval_every == 0 || done == config_.steps)) validate();
      stop_for(reason_to_stop(stop, trainer_.plan()));
      if (over() || done % config_.save_every == 0) save();
    }
    if (over()) emit_(done());
    return !over();
  }

 private:
  void plan_event() {
    Event event = describe(trainer_.plan(), config_);
    const Resolved r = trainer_.resolved();
    event["steps"] = config_.steps;
    event["steps_done"] = trainer_.steps_done();
    for (const UnitInfo& unit : model_.bundle().units) event["unit_names"].push_back(unit.name);
    event["options"] = options_of(config_);
    event["resolved"] = {{"stored_units", text_of(r.stored_units)},
                         {"mlp_tokens", text_of(r.mlp_tokens)},
                         {"threads", text_of(r.threads)},
                         {"arithmetic", r.arithmetic}};
    if (!r.stored_units.empty()) event["resolved"]["backward"] = name_of(Backward::kAuto);
    emit_(event);
    const std::string& before = trainer_.begun_with();
    if (!before.empty() && before != r.arithmetic) {
      emit_({{"event", "moved"}, {"step", trainer_.steps_done()}, {"from", before}, {"to", r.arithmetic}});
    }
  }

  /// Ends the run, saved, where there is a reason and anything left to do.
  void stop_for(const std::string& reason) {
    if (reason.empty() || over()) return;
    save();
    const int64_t done = trainer_.steps_done();
    emit_({{"event", "stopped"}, {"reason", reason}, {"step", done}});
    throw Stopped(reason + "; step " + std::to_string(done) + " is saved in " + paths_.out + " and can be resumed");
  }

  bool over() const { return trainer_.steps_done() >= config_.steps || out_of_patience(); }

  std::unique_ptr<TokenFile> open_valid() const {
    if (config_.eval_every == 0 && !paths_.valid.empty()) {
      fail(paths_.valid, ": validation data requires eval_every, the number of steps between validations");
    }
    if (config_.eval_every == 0) return nullptr;
    if (paths_.valid.empty()) fail("eval_every ", config_.eval_every, ": requires validation data");
    return std::make_unique<TokenFile>(paths_.valid, model_.bundle().vocab_size);
  }

  /// The configuration as this data makes it, and as the checkpoint has it.
  TrainConfig& resolved() {
    if (paths_.resume) use_again(Trainer::read_resolved(paths_.out), config_);
    config_.resumed = paths_.resume;
    resolve(config_, data_.sequences(), base_lr(model_.bundle()));
    config_.offload_folder = paths_.out;
    return config_;
  }

  void train() {
    const auto start = Clock::now();
    const bool unmeasured = trainer_.sensitivities().empty();
    const StepResult result = trainer_.step(data_);
    seconds_.push_back(static_cast<float>(seconds_since(start)));
    if (unmeasured && !trainer_.sensitivities().empty()) {
      emit_({{"event", "sensitivities"},
             {"step", result.step},
             {"sensitivities", trainer_.sensitivities()},
             {"drop_rates", trainer_.schedule().drop_rates}});
    }
    tokens_ += result.tokens;
    const ProcessMemory memory = process_memory();  // nothing of a step is freed within it, so this is its peak
    peak_anon_ = std::max(peak_anon_, memory.anon);
    Event event = {{"event", "step"},
                   {"step", result.step},
                   {"loss", result.loss},
                   {"grad_norm", result.grad_norm},
                   {"lr", result.lr},
                   {"tokens", result.tokens},
                   {"targets_seen", trainer_.targets_seen()},
                   {"seconds", seconds_.back()},
                   {"backward_units", result.backward_units},
                   {"trained", trained(result)},
                   {"rss_mb", megabytes(memory.rss)},
                   {"anon_mb", megabytes(memory.anon)}};
    add_rewards(event, result.sums);
    emit_(event);
  }

  void validate() {
    const auto start = Clock::now();
    const LossSum sum = trainer_.validate(*valid_);
    const double loss = sum.loss / static_cast<double>(sum.count);
    if (!std::isfinite(loss)) fail("step ", trainer_.steps_done(), ": the validation loss is not finite; lower lr");
    const bool best = loss < best_loss();
    trainer_.evaluations.emplace_back(trainer_.steps_done(), loss);
    if (best) {
      const std::string folder = paths_.out + "/best";
      make_folder(folder);
      save_adapter(folder, model_.bundle(), model_.layout(), model_.parameters());
    }
    peak_anon_ = std::max(peak_anon_, process_memory().anon);
    Event event = {{"event", "eval"}, {"step", trainer_.steps_done()}, {"loss", loss}};
    if (config_.loss == Loss::kSft) event["ppl"] = std::exp(loss);
    add_rewards(event, sum);
    event["best"] = best;
    event["seconds"] = seconds_since(start);
    emit_(event);
  }

  void add_rewards(Event& event, const LossSum& sum) const {
    const auto mean = [](double of, int64_t count) { return of / static_cast<double>(count); };
    if (sum.chosen > 0 && sum.rejected > 0) {
      event["reward_margin"] = mean(sum.chosen_reward, sum.chosen) - mean(sum.rejected_reward, sum.rejected);
    }
    if (learns_from_pairs(config_.loss)) {
      event["reward_accuracy"] = mean(static_cast<double>(sum.chosen_higher), sum.count);
    }
    if (config_.loss == Loss::kKto) event["kl"] = mean(sum.kl, sum.count);
  }

  void save() {
    // The adapter first: killed in between, a resumed run comes here again and writes it again.
    save_adapter(paths_.out, model_.bundle(), model_.layout(), model_.parameters());
    trainer_.save_checkpoint(paths_.out, data_);
    if (paths_.keep_moments) trainer_.save_moments(paths_.out);
    emit_({{"event", "saved"}, {"step", trainer_.steps_done()}, {"path", paths_.out}});
  }

  Evaluations::const_iterator best() const {
    const Evaluations& all = trainer_.evaluations;
    return std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  }

  double best_loss() const {
    return trainer_.evaluations.empty() ? std::numeric_limits<double>::infinity() : best()->second;
  }

  /// Whether so many validations in a row brought nothing that the run ends.
  bool out_of_patience() const {
    return config_.patience > 0 && !trainer_.evaluations.empty() &&
           trainer_.evaluations.end() - best() - 1 >= config_.patience;
  }

  Event done() const {
    Event op_seconds = Event::object();
    const std::vector<OpCounter>& ops = model_.program().op_context().counters;
    for (size_t i = 0; i < ops.size(); ++i) {
      const int64_t calls = ops[i].calls - ops_before_[i].calls;
      if (calls > 0) op_seconds[ops[i].name] = {{"calls", calls}, {"seconds", ops[i].seconds - ops_before_[i].seconds}};
    }
    Event method_seconds = Event::object();
    for (const auto& [name, time] : model_.program().times()) {
      method_seconds[name] = {{"calls", time.first}, {"seconds", time.second}};
    }
    const std::vector<double>& losses = trainer_.losses();
    const Plan& plan = trainer_.plan();
    double total = 0;
    for (const float s : seconds_) total += s;
    Event event = {{"event", "done"},
                   {"steps", trainer_.steps_done()},
                   {"stopped", out_of_patience() ? Event("patience") : Event(nullptr)},
                   {"tokens", tokens_},
                   {"targets_seen", trainer_.targets_seen()},
                   {"losses", nullptr},
                   {"loss_first", losses.front()},
                   {"loss_last", losses.back()}};
    event["losses"] = losses;  // braces would copy it several times over
    if (!trainer_.evaluations.empty()) {
      event["evals"] = trainer_.evaluations;
      event["best_step"] = best()->first;
      event["best_loss"] = best()->second;
    }
    const Event rest = {{"step_seconds_median", median(seconds_)},
                        {"tokens_per_second", total > 0 ? static_cast<double>(tokens_) / total : 0},
                        {"peak_rss_mb", megabytes(process_memory().peak_rss)},
                        {"peak_anon_mb", megabytes(peak_anon_)},
                        {"planned_mb", megabytes(plan.total())},
                        {"budget_mb", budget_of(config_)},
                        {"schedule", config_.schedule.rule->name},
                        {"ratio", config_.schedule.rule == &kFull ? 1.0 : config_.schedule.ratio},
                        {"backward", name_of(config_.backward)},
                        {"planned_anon_mb", megabytes(plan.anonymous())},
                        {"stored", stored_units(plan)},
                        {"offloaded", plan.offloaded},
                        {"optimizer", name_of(config_.optimizer)},
                        {"seq_len", config_.seq_len},
                        {"arithmetic", arithmetic(config_)},
                        {"backward_runs", trainer_.backward_runs()},
                        {"method_seconds", method_seconds},
                        {"op_seconds", op_seconds}};
    event.update(rest);
    return event;
  }

  Model& model_;
  TrainConfig config_;
  RunPaths paths_;
  LockedFolder folder_;
  EventSink emit_;
  // Before the trainer, whose plan counts what the process holds by then.
  TokenFile data_;
  std::unique_ptr<TokenFile> valid_;
  Trainer trainer_;
  std::optional<Trace> trace_;
  std::vector<OpCounter> ops_before_ = model_.program().op_context().counters;
  std::vector<float> seconds_;
  int64_t tokens_ = 0;
  uint64_t peak_anon_ = 0;
};

std::map<std::string, std::string> resumed_options(const std::string& folder,
                                                   std::map<std::string, std::string> given) {
  if (!file_exists(folder + kCheckpointFile)) return given;  // `Run` says so
  std::map<std::string, std::string> options = Trainer::read_options(folder);
  // The checkpoint has epochs and shares as numbers of steps.
  if (given.count("epochs")) options.erase("steps");
  if (given.count("warmup_ratio")) options.erase("warmup_steps");
  given.merge(options);
  return given;
}

Run::Run(Model& model, const TrainConfig& config, const RunPaths& paths, EventSink emit)
    : state_(std::make_unique<State>(model, config, paths, std::move(emit))) {}
Run::~Run() = default;
bool Run::step(const StopRequest& stop) { return state_->step(stop); }

std::string StopRequest::reason() const {
  const int value = value_;
  if (value == 0) return "";
  if (value == kTimeIsUp) return "time is up";
  return value == kCancelled ? "cancelled" : "stopped by signal " + std::to_string(value);
}

std::string text_of(const Event& event) { return event.dump(-1, ' ', false, Event::error_handler_t::replace); }

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

Event describe(const Plan& plan, const TrainConfig& config) {
  Event components = Event::object(), anonymous = Event::array();
  for (size_t c = 0; c < kComponents; ++c) {
    const Component component = static_cast<Component>(c);
    components[name_of(component)] = megabytes(plan.of(component));
    if (is_anonymous(component)) anonymous.push_back(name_of(component));
  }
  return {{"event", "plan"},
          {"version", kEventsVersion},
          {"planned_mb", megabytes(plan.total())},
          {"planned_anon_mb", megabytes(plan.anonymous())},
          {"budget_mb", budget_of(config)},
          {"components_mb", components},
          {"anonymous", anonymous},
          {"stored", stored_units(plan)},
          {"units", by_group(plan, [&](size_t g) { return plan.groups[g].units; })},
          {"checkpoints", plan.checkpoints},
          {"offloaded", plan.offloaded},
          {"resident_units", plan.resident},
          {"mlp_tokens", plan.mlp_tokens},
          {"arithmetic", arithmetic(config)},
          {"step_seconds", plan.seconds},
          {"read_seconds", plan.read_seconds},
          {"relative_time", plan.relative_time}};
}

}  // namespace mft
