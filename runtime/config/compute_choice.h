#pragma once

#include <vector>

namespace mft {

/// The option --compute: in what linear layers and attention compute. What kAuto is depends on the command and the
/// machine.
enum class ComputeChoice { kAuto, kFloat32, kInt8 };
inline std::vector<const char*> names(ComputeChoice) { return {"auto", "float32", "int8"}; }

}  // namespace mft
