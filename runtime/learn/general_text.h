#pragma once

#include <vector>

namespace mft {

/// Short texts of many kinds, written for this project, on which every version is compared with the base model: what a
/// version learns must not cost what the model knew.
const std::vector<const char*>& general_text();

}  // namespace mft
