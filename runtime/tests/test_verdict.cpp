// Decisions of a learner: how likely chance makes a gain, and which versions are adopted.

#include <cmath>
#include <vector>

#include "runtime/learn/prompt_fit.h"
#include "runtime/learn/verdict.h"
#include "runtime/tests/check.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

void test_chance() {
  // All gains: only the signs as they are reach the mean, one of 2^n choices. One row may gain far more.
  CHECK(chance_of({1, 2, 3, 4, 5}) == 1.0 / 32);
  CHECK(chance_of({100, 0.1, 0.1, 0.1, 0.1, 0.1}) == 1.0 / 64);
  // One row alone gains: half of the choices reach it.
  CHECK(chance_of({1, 0, 0, 0, 0}) == 0.5);
  CHECK(chance_of({-1, -2, -3, -4, -5}) == 1);
  CHECK(chance_of({3, 1, -1}) == 0.375);  // 3 1 1, 3 1 -1 and 3 -1 1 of eight
  // Random choices of more rows: a z of 2.4 of the normal distribution that the mean of many approaches.
  std::vector<double> gains;
  for (int i = 0; i < 100; ++i) gains.push_back(i < 62 ? 1 : -1);
  CHECK(std::abs(chance_of(gains) - 0.0105) < 0.003);
  CHECK(chance_of(std::vector<double>(100, 1)) == 1.0 / 20001);
}

VersionLosses losses(const std::vector<double>& rows, double general = 3) {
  VersionLosses made;
  for (size_t i = 0; i < rows.size(); ++i) made.rows[std::to_string(i)] = {rows[i], 1};
  made.general = general;
  return made;
}

void test_decisions() {
  const VersionLosses before = losses({2, 2.1, 1.9, 2, 2.2, 1.8}), base = losses({}, 3);
  const Verdict better = decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}), base, 0.02);
  CHECK(better.adopted && better.rows == 6 && better.chance == 1.0 / 64);
  CHECK(std::abs(better.gain - 0.5 / 6) < 1e-12 && std::abs(better.loss - 11.5 / 6) < 1e-12);
  // A long row counts as much as its tokens.
  VersionLosses longer = before, fell = losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75});
  longer.rows["0"] = {20, 10};
  fell.rows["0"] = {19, 10};
  const Verdict weighted = decide(longer, fell, base, 0.02);
  CHECK(std::abs(weighted.gain - 1.4 / 15) < 1e-12 && std::abs(weighted.loss - 28.6 / 15) < 1e-12);
  // The mean of gains is as large, but one row makes it.
  const Verdict chance = decide(before, losses({1.5, 2.1, 1.9, 2, 2.2, 1.8}), base, 0.02);
  CHECK(!chance.adopted && chance.chance == 0.5 && contains(chance.why, "which chance alone makes in 50.0 % of cases"));
  const Verdict forgets = decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}, 3.03), base, 0.02);
  CHECK(!forgets.adopted && contains(forgets.why, "general text rose by 3.0 %"));
  CHECK(decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}, 3.03), base, 0.04).adopted);
  CHECK(chance.undecided && !better.undecided && !forgets.undecided);
  const Verdict worse = decide(before, losses({2.1, 2.2, 2, 2.1, 2.3, 1.9}), base, 0.02);
  CHECK(!worse.adopted && !worse.undecided && contains(worse.why, "rose by 0.1000, which chance alone makes in 1.6 %"));
  const Verdict hardly = decide(before, losses({2.1, 2, 2, 1.9, 2.3, 1.7}), base, 0.02);
  CHECK(!hardly.adopted && hardly.undecided && contains(hardly.why, "the next night goes on from here"));
  // Rows without a loss before are not compared.
  const Verdict few = decide(losses({2, 2, 2}), losses({1, 1, 1, 1, 1, 1}), base, 0.02);
  CHECK(few.undecided && !few.adopted && few.rows == 3 && contains(few.why, "a decision needs 5"));
  CHECK(!decide(before, losses({std::nan(""), 1, 1, 1, 1, 1}), base, 0.02).adopted);
}

void test_mixed_up_answers() {
  // At least 28 of 40 are more than half, but for what chance makes in 1 % of cases.
  CHECK(is_mixed_up({20, 40}, {39, 40}) && is_mixed_up({27, 40}, {39, 40}) && !is_mixed_up({28, 40}, {39, 40}));
  // No fewer than in earlier nights, where answers may not depend on prompts.
  CHECK(!is_mixed_up({20, 40}, {24, 40}) && !is_mixed_up({20, 40}, {60, 90}) && is_mixed_up({20, 40}, {99, 120}));
  CHECK(!is_mixed_up({20, 40}, {}));
  // Few rows tell nothing.
  CHECK(!is_mixed_up({0, 9}, {40, 40}) && is_mixed_up({5, 10}, {400, 400}) && !is_mixed_up({9, 10}, {33, 40}));
}

}  // namespace

int main() {
  test_chance();
  test_decisions();
  test_mixed_up_answers();
  return finish();
}
