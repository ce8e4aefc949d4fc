#include "runtime/platform/darwin/sysctl.h"

namespace mft {

// Level 0 is the fastest. Intel's Macs have no levels.
int64_t big_cores_of(const Sysctl& sysctl) { return sysctl("hw.perflevel0.physicalcpu"); }

ArmFeatures arm_features_of(const Sysctl& sysctl) {
  return {sysctl("hw.optional.arm.FEAT_DotProd") == 1, sysctl("hw.optional.arm.FEAT_I8MM") == 1,
          sysctl("hw.optional.arm.FEAT_SHA256") == 1};
}

}  // namespace mft
