#pragma once

#include "runtime/formats/group.h"

namespace mft {

/// A scale and a minimum, both kept as float16: weight = scale * code + minimum.
struct Affine {
  float scale, minimum;
};

/// The scale and minimum of a group whose codes are 0 to `most` (15 for q4_1, 255 for q8_1). Writes the group's codes.
///
/// The search minimizes sum_i w_i (x_i - scale * code_i - minimum)^2. It tries ranges that clip a little at either end,
/// and improves the best of them: for given codes, the best scale and minimum are those of a weighted linear
/// regression.
Affine search_affine(const Group& group, float most, uint8_t* codes);

}  // namespace mft
