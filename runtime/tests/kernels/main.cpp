// Runs the tests of one instruction set's kernels, compiled for it; this file is not, so it runs anywhere.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/dispatch/kernels.h"

int run_tests();

int main() {
  const std::vector<std::string> sets = mft::instruction_sets();
  if (std::find(sets.begin(), sets.end(), MFT_TESTED_ISA) == sets.end()) {
    std::puts("skipped: this CPU has no " MFT_TESTED_ISA);
    return 0;
  }
  return run_tests();
}
