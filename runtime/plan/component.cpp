#include "runtime/plan/component.h"

#include "runtime/base/error.h"

namespace mft {

bool is_anonymous(Component component) {
  switch (component) {
    case Component::kCode:
    case Component::kWeightsWindow:
    case Component::kResidentWeights:
      return false;
    case Component::kHeap:
    case Component::kLora:
    case Component::kNoAdapter:
    case Component::kSideTensors:
    case Component::kStart:
    case Component::kGradients:
    case Component::kSpareGradients:
    case Component::kOptimizer:
    case Component::kKernelScratch:
    case Component::kArena:
    case Component::kSavedActivations:
    case Component::kActivations:
    case Component::kCheckpoints:
      return true;
  }
  fail("component ", static_cast<int>(component), " is unknown");
}

}  // namespace mft
