#pragma once

namespace mft {

/// Text of many kinds, written for this project, on which every version is compared with the base model: what a version
/// learns must not cost what the model knew.
extern const char* const kGeneralText;

}  // namespace mft
