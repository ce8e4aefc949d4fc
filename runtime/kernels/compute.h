#pragma once

namespace mft {

// What products are computed in. All else is float32.
//
//   kInt8   Linear layers and the head multiply codes of 8 bits (linear/int8_gemm.h), and attention does where one
//           instruction sums products of bytes (attention/int8_attention.h). For training.
//   kInt15  Linear layers multiply a weight's own codes by activations of 15 bits where that is faster than float32
//           (linear/matvec.h, linear/int15_gemm.h). For answers.
enum class Compute { kFloat32, kInt8, kInt15 };

}  // namespace mft
