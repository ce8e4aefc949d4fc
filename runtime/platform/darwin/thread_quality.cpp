#include "runtime/platform/thread_quality.h"

#include <pthread/qos.h>

namespace mft {

int thread_quality() { return static_cast<int>(qos_class_self()); }

void set_thread_quality(int quality) { pthread_set_qos_class_self_np(static_cast<qos_class_t>(quality), 0); }

}  // namespace mft
