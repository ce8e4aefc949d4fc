#pragma once

#include <cstdint>

#include "runtime/formats/format.h"

namespace mft::MFT_ISA {

// out [T, K] = rows `tokens` [T] of the table [rows, K], times `scale`. False if a token is out of range; the
// rows of `out` are then unspecified.
bool embedding(const int64_t* tokens, int64_t t, const PackedWeight& table, float scale, float* out);

}  // namespace mft::MFT_ISA
