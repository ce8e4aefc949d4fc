#include "runtime/platform/process_memory.h"

#include <mach/mach.h>

namespace mft {

ProcessMemory process_memory() {
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  if (task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count) != KERN_SUCCESS)
    return {};
  const auto footprint = static_cast<uint64_t>(info.phys_footprint);
  return {footprint, footprint, static_cast<uint64_t>(info.ledger_phys_footprint_peak)};
}

bool reset_peak_rss() { return false; }

}  // namespace mft
