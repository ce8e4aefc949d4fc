#pragma once

namespace mft {

// What products are computed in. With kInt8, linear layers and the head multiply codes of 8 bits (linear/int8_gemm.h),
// and attention does where one instruction sums products of bytes (attention/int8_attention.h). All else is float32.
enum class Compute { kFloat32, kInt8 };

}  // namespace mft
