// Decisions of a learner: the quantile of Student's t against tables, and which versions are adopted.

#include <cmath>

#include "runtime/learn/verdict.h"
#include "runtime/tests/check.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

void test_quantile() {
  const std::pair<double, double> table[] = {{3, 2.3534},  {4, 2.1318},   {7, 1.8946},    {10, 1.8125},
                                             {30, 1.6973}, {100, 1.6602}, {10000, 1.6450}};
  for (const auto& [freedom, t] : table) CHECK(std::abs(t_quantile(freedom) / t - 1) < 0.005);
}

VersionLosses losses(const std::vector<double>& rows, double general = 3) {
  VersionLosses made;
  for (size_t i = 0; i < rows.size(); ++i) made.rows[std::to_string(i)] = rows[i];
  made.general = general;
  return made;
}

void test_decisions() {
  const VersionLosses before = losses({2, 2.1, 1.9, 2, 2.2, 1.8}), base = losses({}, 3);
  const Verdict better = decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}), base, 0.02);
  CHECK(better.adopted && better.rows == 6 && better.lower > 0 && better.lower < better.gain);
  CHECK(std::abs(better.gain - 0.5 / 6) < 1e-12 && std::abs(better.loss - 11.5 / 6) < 1e-12);
  // The mean of gains is as large, but one row makes it.
  const Verdict chance = decide(before, losses({1.5, 2.1, 1.9, 2, 2.2, 1.8}), base, 0.02);
  CHECK(!chance.adopted && chance.lower < 0 && contains(chance.why, "by more than chance explains"));
  const Verdict forgets = decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}, 3.03), base, 0.02);
  CHECK(!forgets.adopted && contains(forgets.why, "general text rose by 3.0 %"));
  CHECK(decide(before, losses({1.9, 2.05, 1.8, 1.9, 2.1, 1.75}, 3.03), base, 0.04).adopted);
  // Rows without a loss before are not compared.
  const Verdict few = decide(losses({2, 2, 2}), losses({1, 1, 1, 1, 1, 1}), base, 0.02);
  CHECK(!few.adopted && few.rows == 3 && contains(few.why, "a decision needs 4"));
  CHECK(!decide(before, losses({std::nan(""), 1, 1, 1, 1, 1}), base, 0.02).adopted);
}

}  // namespace

int main() {
  test_quantile();
  test_decisions();
  return finish();
}
