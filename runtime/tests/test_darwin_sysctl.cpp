// big_cores_of and arm_features_of: what an Apple CPU is taken for, by the numbers that Darwin gives.

#include <map>
#include <string>

#include "runtime/platform/darwin/sysctl.h"
#include "runtime/tests/test_support.h"

using namespace mft;

namespace {

Sysctl numbers(const std::map<std::string, int64_t>& known) {
  return [known](const char* name) {
    const auto found = known.find(name);
    return found == known.end() ? 0 : found->second;
  };
}

}  // namespace

int main() {
  const Sysctl m2 = numbers({{"hw.nperflevels", 2},
                             {"hw.perflevel0.physicalcpu", 4},
                             {"hw.perflevel1.physicalcpu", 4},
                             {"hw.optional.arm.FEAT_DotProd", 1},
                             {"hw.optional.arm.FEAT_I8MM", 1},
                             {"hw.optional.arm.FEAT_SHA256", 1}});
  CHECK(big_cores_of(m2) == 4);
  CHECK(arm_features_of(m2).dotprod && arm_features_of(m2).i8mm && arm_features_of(m2).sha2);

  // A12: two big cores of six, no products of int8.
  const Sysctl a12 = numbers({{"hw.perflevel0.physicalcpu", 2},
                              {"hw.perflevel1.physicalcpu", 4},
                              {"hw.optional.arm.FEAT_DotProd", 0},
                              {"hw.optional.arm.FEAT_SHA256", 1}});
  CHECK(big_cores_of(a12) == 2);
  CHECK(!arm_features_of(a12).dotprod && !arm_features_of(a12).i8mm && arm_features_of(a12).sha2);

  const Sysctl intel = numbers({{"hw.physicalcpu", 8}});
  CHECK(big_cores_of(intel) == 0);
  return mft_test::finish();
}
