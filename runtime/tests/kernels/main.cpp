// Runs the tests of one instruction set's kernels, compiled for it; this file is not, so it runs anywhere. The argument
// is the test's name, that of its file.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/dispatch/kernels.h"

#define TEST(name) int name();
MFT_KERNEL_TESTS
#undef TEST

int main(int argc, char** argv) {
  const std::vector<std::string> sets = mft::instruction_sets();
  if (std::find(sets.begin(), sets.end(), MFT_TESTED_ISA) == sets.end()) {
    std::puts("skipped: this CPU has no " MFT_TESTED_ISA);
    return 0;
  }
#define TEST(name) \
  if (argc == 2 && std::strcmp(argv[1], #name) == 0) return name();
  MFT_KERNEL_TESTS
#undef TEST
  std::fputs("give the name of one test\n", stderr);
  return 2;
}
