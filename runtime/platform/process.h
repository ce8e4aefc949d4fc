#pragma once

#include <cstdint>

namespace mft {

/// Makes this process end, as by SIGTERM, when the process `parent` ends.
void end_with_process(int64_t parent);

/// Makes pages of this process small: a huge page is resident as a whole even if only a few bytes are used, but plans
/// count used pages. The kernels of many Linux distributions use huge pages by default; Darwin does not on ARM.
void use_small_pages();

}  // namespace mft
