#include "runtime/platform/memory_limit.h"

#include <TargetConditionals.h>

#if TARGET_OS_IPHONE && !TARGET_OS_SIMULATOR
#include <os/proc.h>

#include "runtime/platform/process_memory.h"
#endif

namespace mft {

#if TARGET_OS_IPHONE && !TARGET_OS_SIMULATOR
uint64_t memory_limit() { return process_memory().rss + os_proc_available_memory(); }
#else
uint64_t memory_limit() { return 0; }  // macOS compresses memory and swaps before it ends a process
#endif

}  // namespace mft
