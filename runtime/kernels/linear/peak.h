#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// How fast this instruction set can multiply and add: independent chains in registers, one of them a thread's for
// `rounds`. Returns the float32 multiply-adds done.
int64_t multiply_add_peak(int64_t rounds);

}  // namespace mft::MFT_ISA
