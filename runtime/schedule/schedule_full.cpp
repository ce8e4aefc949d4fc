#include "runtime/schedule/schedule.h"

namespace mft {

const ScheduleRule kFull = {
    "full",
    [](const Schedule&, int64_t, int64_t layers) { return std::vector<bool>(static_cast<size_t>(layers), true); },
    [](const Schedule&, int64_t layers) { return layers; }};

}  // namespace mft
