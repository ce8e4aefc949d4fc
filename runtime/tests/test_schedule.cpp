// Schedule::select: how many layers, which ones, and that (seed, step) alone decides.

#include <algorithm>
#include <limits>
#include <set>

#include "runtime/base/random.h"
#include "runtime/schedule/schedule.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

Schedule lcsb(Selection selection, double ratio, uint64_t seed = 0) {
  Schedule schedule;
  schedule.rule = &kLcsb;
  schedule.selection = selection;
  schedule.ratio = ratio;
  schedule.seed = seed;
  return schedule;
}

Schedule suffix(const std::vector<int64_t>& depths, double ratio = 0.5) {
  Schedule schedule;
  schedule.rule = &kSuffix;
  schedule.suffix_depths = depths;
  schedule.ratio = ratio;
  return schedule;
}

int64_t count(const std::vector<bool>& layers) { return std::count(layers.begin(), layers.end(), true); }

/// Depth of a selection that must be the top layers and nothing else.
int64_t depth(const std::vector<bool>& layers) {
  const int64_t d = count(layers);
  CHECK(std::all_of(layers.end() - d, layers.end(), [](bool on) { return on; }));
  return d;
}

void test_full() {
  const Schedule schedule;
  CHECK(count(schedule.select(0, 7)) == 7);
  CHECK(schedule.most_selected(7) == 7);
  CHECK(std::string(schedule.rule->name) == "full");
}

void test_lcsb_counts(Selection selection) {
  for (const int64_t layers : {1, 2, 7, 12, 30}) {
    for (const double ratio : {0.01, 0.25, 0.34, 0.5, 0.75, 1.0}) {
      const Schedule schedule = lcsb(selection, ratio);
      const int64_t expected = std::max<int64_t>(1, std::llround(ratio * static_cast<double>(layers)));
      CHECK(schedule.most_selected(layers) == expected);
      for (int64_t step = 0; step < 50; ++step) {
        const auto selected = schedule.select(step, layers);
        CHECK(static_cast<int64_t>(selected.size()) == layers);
        CHECK(count(selected) == expected);
        CHECK(selected == schedule.select(step, layers));
      }
    }
  }
  CHECK(std::string(lcsb(selection, 0.5).rule->name) == "lcsb");
}

void test_contiguous() {
  const Schedule schedule = lcsb(Selection::kContiguous, 0.5);
  CHECK(schedule.select(0, 4) == (std::vector<bool>{true, true, false, false}));
  CHECK(schedule.select(1, 4) == (std::vector<bool>{false, false, true, true}));
  CHECK(schedule.select(2, 4) == schedule.select(0, 4));
  // A window that runs past the last layer goes on at the first, so every layer gets the same number of turns.
  const Schedule third = lcsb(Selection::kContiguous, 0.4);  // 2 of 5
  CHECK(third.select(2, 5) == (std::vector<bool>{true, false, false, false, true}));
  std::vector<int> turns(5);
  for (int64_t step = 0; step < 5; ++step) {
    const auto selected = third.select(step, 5);
    for (size_t i = 0; i < 5; ++i) turns[i] += selected[i];
  }
  CHECK(turns == std::vector<int>(5, 2));
}

void test_strided() {
  const Schedule schedule = lcsb(Selection::kStrided, 0.25);  // every 4th of 12
  const auto first = schedule.select(0, 12);
  for (size_t i = 0; i < 12; ++i) CHECK(first[i] == (i % 4 == 0));
  std::vector<int> turns(12);
  for (int64_t step = 0; step < 4; ++step) {
    const auto selected = schedule.select(step, 12);
    for (size_t i = 0; i < 12; ++i) turns[i] += selected[i];
  }
  CHECK(turns == std::vector<int>(12, 1));
}

void test_random() {
  const int64_t layers = 30;
  const Schedule schedule = lcsb(Selection::kRandom, 0.5, 1);
  const Schedule other_seed = lcsb(Selection::kRandom, 0.5, 2);
  std::set<std::vector<bool>> seen;
  std::vector<int> turns(layers);
  int same = 0;
  for (int64_t step = 0; step < 200; ++step) {
    const auto selected = schedule.select(step, layers);
    seen.insert(selected);
    same += selected == other_seed.select(step, layers);
    for (size_t i = 0; i < selected.size(); ++i) turns[i] += selected[i];
  }
  CHECK(seen.size() == 200);
  CHECK(same == 0);
  for (const int n : turns) CHECK(n > 60 && n < 140);  // 100 expected, deviation 7
}

void test_suffix() {
  const Schedule schedule = suffix({1, 4, 2});
  const int64_t expected[] = {1, 4, 2, 1, 4, 2};
  for (int64_t step = 0; step < 6; ++step) CHECK(depth(schedule.select(step, 8)) == expected[step]);
  CHECK(schedule.most_selected(8) == 4);
  CHECK(std::string(schedule.rule->name) == "suffix");

  const Schedule automatic = suffix({});
  const int64_t cycle[] = {3, 6, 9, 6, 3};
  for (int64_t step = 0; step < 5; ++step) CHECK(depth(automatic.select(step, 12)) == cycle[step]);
  CHECK(automatic.most_selected(12) == 9);

  CHECK_ERROR(suffix({0}).select(0, 8), "suffix depth 0: must be from 1 to 8");
  CHECK_ERROR(suffix({4, 9}).select(0, 8), "suffix depth 9: must be from 1 to 8");
  CHECK_ERROR(suffix({-1}).most_selected(8), "suffix depth -1: must be from 1 to 8");
}

void test_suffix_bound() {
  for (const int64_t layers : {1, 2, 5, 30}) {
    for (const double ratio : {0.01, 0.3, 0.5, 0.9, 1.0}) {
      const Schedule schedule = suffix({}, ratio);
      const int64_t most = schedule.most_selected(layers);
      int64_t deepest = 0;
      for (int64_t step = 0; step < 8; ++step) deepest = std::max(deepest, depth(schedule.select(step, layers)));
      CHECK(deepest == most && most >= 1 && most <= layers);
    }
  }
}

Schedule schedule_of(const ScheduleRule& rule, double ratio) {
  Schedule schedule;
  schedule.rule = &rule;
  schedule.ratio = ratio;
  return schedule;
}

/// As many layers as the ratio says, other ones in each period; above the lowest of them backward runs everywhere.
void test_lisa() {
  Schedule schedule = schedule_of(kLisa, 0.1);
  schedule.period = 5;
  std::set<std::vector<bool>> seen;
  for (int64_t step = 0; step < 100; ++step) {
    const auto selected = schedule.select(step, 30);
    CHECK(count(selected) == 3 && schedule.most_selected(30) == 3);
    CHECK(selected == schedule.select(step / 5 * 5, 30));
    seen.insert(selected);
    const auto runs = schedule.with_backward(selected);
    const int64_t lowest = std::find(selected.begin(), selected.end(), true) - selected.begin();
    CHECK(depth(runs) == 30 - lowest);
  }
  CHECK(seen.size() > 15);
  CHECK(schedule.most_with_backward(30) == 30);
  schedule.period = 0;
  CHECK_ERROR(schedule.select(0, 8), "period 0: must be at least 1 step");
}

/// All layers at first; then one by one they freeze, down to one. On average the ratio is left, whatever the run's
/// length.
void test_freeze() {
  for (const double ratio : {0.25, 0.5, 0.8, 1.0}) {
    Schedule schedule = schedule_of(kFreeze, ratio);
    schedule.steps = 200;
    int64_t before = 30, all = 0;
    for (int64_t step = 0; step < 200; ++step) {
      const int64_t now = depth(schedule.select(step, 30));
      CHECK(now <= before && (now >= before - 1 || ratio > 0.5));
      all += now;
      before = now;
    }
    CHECK(before == (ratio == 1.0 ? 30 : ratio == 0.8 ? 7 : 1));  // 0.0025^0.25 of 30
    CHECK_NEAR(static_cast<double>(all) / (200 * 30), ratio, 0.01);
  }
  Schedule schedule = schedule_of(kFreeze, 0.25);
  schedule.steps = 8;
  const int64_t cubes[] = {25, 16, 10, 5, 3, 1, 1, 1};  // 30 x (1 - (step + 1/2) / 8)^3
  for (int64_t step = 0; step < 8; ++step) CHECK(depth(schedule.select(step, 30)) == cubes[step]);
  CHECK(depth(schedule.select(9, 30)) == 1);  // beyond the run's end
  CHECK(schedule.most_selected(30) == 30 && schedule.most_with_backward(30) == 30);
}

/// Never more units than the ratio says; before sensitivities are known the lowest are dropped beside those drawn,
/// later those with the highest rates.
void test_dropbp() {
  Schedule schedule = schedule_of(kDropBP, 0.5);
  schedule.steps = 100;
  CHECK(schedule.most_selected(60) == 30 && schedule.measuring_step() == 10);
  CHECK(schedule_of(kFull, 0.5).measuring_step() == -1);
  std::vector<int> turns(60);
  int64_t fewest = 60;
  for (int64_t step = 0; step < 400; ++step) {
    const auto selected = schedule.select(step, 60);
    CHECK(static_cast<int64_t>(selected.size()) == 60 && count(selected) <= 30);
    CHECK(selected == schedule.select(step, 60));
    fewest = std::min(fewest, count(selected));
    for (size_t i = 0; i < 60; ++i) turns[i] += selected[i];
  }
  CHECK(fewest < 25);
  CHECK(turns[0] < turns[59]);
  CHECK(turns[59] > 150 && turns[59] < 250);

  schedule.drop_rates.assign(60, 0.0);
  schedule.drop_rates[7] = 0.9;
  schedule.drop_rates[8] = 0.1;
  const auto selected = schedule.select(3, 60);
  CHECK(count(selected) == 30 && !selected[7] && !selected[8]);
  for (size_t i = 0; i < 60; ++i) CHECK(i == 7 || i == 8 || selected[i] == (i >= 30));
}

/// Throughput against the definition, tried here in another way: at every raise all rates are compared anew.
void test_drop_rates() {
  const std::vector<double> rates = allocate_drop_rates({1, 10, 1, 100}, {1, 1, 2, 2}, 0.5);
  // 0.9 of the first and third are 2.7 of 6 operations; the second, ten times as sensitive, makes up 0.3.
  CHECK(rates == (std::vector<double>{0.9, 0.3, 0.9, 0.0}));
  // Of equal units the lowest is raised first.
  CHECK(allocate_drop_rates({1, 1, 1}, {1, 1, 1}, 0.1) == (std::vector<double>{0.1, 0.1, 0.1}));
  CHECK(allocate_drop_rates({1, 1, 1}, {1, 1, 1}, 0.05) == (std::vector<double>{0.1, 0.1, 0.0}));
  // No rate is above 0.9, whatever is asked for.
  CHECK(allocate_drop_rates({1, 2}, {1, 1}, 0.95) == (std::vector<double>{0.9, 0.9}));
  CHECK(allocate_drop_rates({1, 2}, {1, 1}, 0) == (std::vector<double>{0, 0}));
  Random random(5, 0);
  for (int run = 0; run < 50; ++run) {
    std::vector<double> sensitivities, flops;
    double total = 0, dropped = 0;
    for (int u = 0; u < 12; ++u) {
      sensitivities.push_back(random.uniform());
      flops.push_back(u % 2 ? 3 : 1);
      total += flops.back();
    }
    const std::vector<double> found = allocate_drop_rates(sensitivities, flops, 0.6);
    for (size_t u = 0; u < found.size(); ++u) dropped += found[u] * flops[u];
    CHECK(dropped >= 0.6 * total - 1e-9 && dropped < 0.6 * total + 0.3 - 1e-9);
    for (size_t u = 0; u < found.size(); ++u) {
      for (size_t v = 0; v < found.size(); ++v) {
        // What the last raise of one cost is no more than the next of another would have.
        if (found[v] < 0.85) CHECK(sensitivities[u] * found[u] <= sensitivities[v] * (found[v] + 0.1) + 1e-12);
      }
    }
  }
}

void test_ratio() {
  for (const double ratio : {0.0, -0.5, 1.0001, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_ERROR(lcsb(Selection::kRandom, ratio).select(0, 8), "must be above 0 and at most 1");
    CHECK_ERROR(lcsb(Selection::kRandom, ratio).most_selected(8), "must be above 0 and at most 1");
  }
}

}  // namespace

int main() {
  test_full();
  for (const Selection selection : {Selection::kContiguous, Selection::kStrided, Selection::kRandom}) {
    test_lcsb_counts(selection);
  }
  test_contiguous();
  test_strided();
  test_random();
  test_suffix();
  test_suffix_bound();
  test_lisa();
  test_freeze();
  test_dropbp();
  test_drop_rates();
  test_ratio();
  return finish();
}
