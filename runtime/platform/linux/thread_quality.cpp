#include "runtime/platform/thread_quality.h"

namespace mft {

int thread_quality() { return 0; }

void set_thread_quality(int) {}

}  // namespace mft
