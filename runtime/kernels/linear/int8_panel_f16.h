#pragma once

#include "runtime/kernels/linear/int8_panel.h"

namespace mft::MFT_ISA {

// What int8_panel.cpp does for coded weights, for weights in float16: 16 columns of a panel of W^T or of W.
void load_f16_columns(const PackedWeight& w, int64_t panel, int64_t k0, int64_t kc, Int8Panel out);
void load_f16_rows(const PackedWeight& w, int64_t n0, int64_t nc, int64_t k0, Int8Panel out);

}  // namespace mft::MFT_ISA
