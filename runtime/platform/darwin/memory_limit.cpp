#include "runtime/platform/memory_limit.h"

#include <TargetConditionals.h>

#if TARGET_OS_IPHONE
#include <os/proc.h>

#include "runtime/platform/process_memory.h"
#endif

namespace mft {

#if TARGET_OS_IPHONE
uint64_t memory_limit() {
  const uint64_t left = os_proc_available_memory();
  return left == 0 ? 0 : process_memory().rss + left;  // 0: in the simulator, which has no limit
}
#else
uint64_t memory_limit() { return 0; }  // macOS compresses memory and swaps before it ends a process
#endif

}  // namespace mft
