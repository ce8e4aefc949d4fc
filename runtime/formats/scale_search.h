#pragma once

#include "runtime/formats/format.h"
#include "runtime/formats/group.h"

namespace mft {

/// The scale of a group in a format without minima: weight = scale * level(code). Writes the group's codes. Scales are
/// float16 for q4_0, q8_0 and iq4_nl, and float32 for nf4 and fp4.
///
/// The search minimizes sum_i w_i (x_i - scale * level_i)^2, where w_i is the group's weight times sqrt(1 + x_i^2 /
/// mean of squares). It tries scales around the one by which the largest value just fits, and improves the best of
/// them.
float search_scale(const Group& group, Code code, uint8_t* codes);

}  // namespace mft
