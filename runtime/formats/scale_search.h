#pragma once

#include "runtime/formats/format.h"
#include "runtime/formats/group.h"

namespace mft {

/// The scale of a group in a format with a scale alone: weight = scale * level(code). Writes the group's codes.
///
/// The search minimizes sum_i w_i (x_i - scale * level_i)^2, where w_i is the group's weight times sqrt(1 + x_i^2 /
/// mean of squares). It tries scales around the one by which the largest value just fits, and improves the best of
/// them.
float search_scale(const Group& group, Code code, uint8_t* codes);

}  // namespace mft
