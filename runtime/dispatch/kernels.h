#pragma once

// The kernels of one instruction set. `kernels/` is compiled once for each of those the platform knows (listed in
// runtime/CMakeLists.txt), in the namespace MFT_ISA of its name.

#include <string>
#include <vector>

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/attention/rope.h"
#include "runtime/kernels/attention/short_conv.h"
#include "runtime/kernels/elementwise/add.h"
#include "runtime/kernels/elementwise/add_bias.h"
#include "runtime/kernels/elementwise/affine.h"
#include "runtime/kernels/elementwise/glu.h"
#include "runtime/kernels/elementwise/glu_2bit.h"
#include "runtime/kernels/elementwise/ms_rms_norm.h"
#include "runtime/kernels/elementwise/relu2.h"
#include "runtime/kernels/elementwise/rms_norm.h"
#include "runtime/kernels/elementwise/sigmoid_gate.h"
#include "runtime/kernels/elementwise/softcap.h"
#include "runtime/kernels/elementwise/split.h"
#include "runtime/kernels/linear/decode.h"
#include "runtime/kernels/linear/embedding.h"
#include "runtime/kernels/linear/experts.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/kernels/linear/linear_cross_entropy.h"
#include "runtime/kernels/linear/peak.h"
#include "runtime/kernels/recurrent/delta_net.h"
#include "runtime/kernels/recurrent/mamba2.h"
#include "runtime/kernels/storage/adamw.h"
#include "runtime/kernels/storage/adamw8bit.h"
#include "runtime/kernels/storage/half.h"
#include "runtime/kernels/storage/int4_blocks.h"
#include "runtime/kernels/storage/int8_blocks.h"

namespace mft {

// Every function of the kernels that the rest of the runtime calls.
#define MFT_KERNELS(X)                  \
  X(adamw_step)                         \
  X(sum_of_squares)                     \
  X(adamw8bit_step)                     \
  X(dynamic_map)                        \
  X(add)                                \
  X(add_bias)                           \
  X(affine)                             \
  X(attention_forward)                  \
  X(attention_backward)                 \
  X(attention_decode)                   \
  X(attention_scratch_bytes)            \
  X(decode_row)                         \
  X(delta_net)                          \
  X(delta_net_backward)                 \
  X(delta_net_decode)                   \
  X(delta_net_scratch_bytes)            \
  X(embedding)                          \
  X(experts_forward)                    \
  X(experts_backward)                   \
  X(experts_scratch_bytes)              \
  X(glu)                                \
  X(glu_backward)                       \
  X(glu_2bit)                           \
  X(glu_2bit_backward)                  \
  X(to_half)                            \
  X(from_half)                          \
  X(to_int8)                            \
  X(from_int8)                          \
  X(to_int4)                            \
  X(from_int4)                          \
  X(kv_store)                           \
  X(linear_forward)                     \
  X(linear_backward)                    \
  X(linear_scratch_bytes)               \
  X(linear_cross_entropy)               \
  X(linear_cross_entropy_scratch_bytes) \
  X(mamba2)                             \
  X(mamba2_backward)                    \
  X(mamba2_decode)                      \
  X(mamba2_scratch_bytes)               \
  X(ms_rms_norm)                        \
  X(ms_rms_norm_backward)               \
  X(multiply_add_peak)                  \
  X(relu2)                              \
  X(relu2_backward)                     \
  X(rms_norm)                           \
  X(rms_norm_backward)                  \
  X(rope)                               \
  X(rope_scratch_bytes)                 \
  X(short_conv)                         \
  X(short_conv_backward)                \
  X(short_conv_decode)                  \
  X(sigmoid_gate)                       \
  X(sigmoid_gate_backward)              \
  X(softcap)                            \
  X(split)                              \
  X(join)

struct Kernels {
  const char* isa;    // such as "avx2"
  bool dot_products;  // of bytes: int8 is then much faster than float32
#define MFT_MEMBER(kernel) decltype(&MFT_ISA::kernel) kernel;
  MFT_KERNELS(MFT_MEMBER)
#undef MFT_MEMBER
};

// Those of the best instruction set that this CPU has, or of the one that the environment variable MFT_ISA names.
// Picked at the first call, which throws std::invalid_argument where the CPU has none of them, or not the one named.
const Kernels& kernels();

// From now on the kernels of another one, between two calls of any of them: for benchmarks, which compare.
void use_instruction_set(const std::string& name);

// The names of the instruction sets that were compiled and that this CPU has, the best last.
std::vector<std::string> instruction_sets();

}  // namespace mft
