// Compiled for each instruction set, as the kernels are.

#include "runtime/dispatch/kernels.h"
#include "runtime/kernels/linear/int8_vec.h"

#define MFT_TEXT2(x) #x
#define MFT_TEXT(x) MFT_TEXT2(x)

namespace mft::MFT_ISA {

extern const Kernels table;
const Kernels table = {MFT_TEXT(MFT_ISA), kDotProducts,
#define MFT_ENTRY(kernel) &kernel,
                       MFT_KERNELS(MFT_ENTRY)
#undef MFT_ENTRY
};

}  // namespace mft::MFT_ISA
