#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/attention/kv_cache.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/ops/half_lora.h"

namespace mft {

/// A caller's buffer that a method writes an output to. ExecuTorch checks an output against the largest shape that the
/// program gives it; ops check it against the buffer.
struct OutputRoom {
  const void* data;
  size_t bytes;
};

/// What packed_linear computed from its x, in the format of its kernel, at the beginning of the kernel scratch. A
/// packed_linear that directly follows on the same x uses it again: q, k and v read one x, and so do gate and up.
class PackedInput {
 public:
  /// Whether the scratch holds x [m, k] in the format of `compute`.
  bool holds(Compute compute, const float* x, int64_t m, int64_t k, const std::byte* scratch) const {
    return x != nullptr && compute_ == compute && x_ == x && m_ == m && k_ == k && scratch_ == scratch;
  }
  void keep(Compute compute, const float* x, int64_t m, int64_t k, const std::byte* scratch) {
    compute_ = compute, x_ = x, m_ = m, k_ = k, scratch_ = scratch;
  }
  /// Any other op may overwrite x or the scratch, and so may the caller between two methods.
  void forget() { x_ = nullptr; }

 private:
  Compute compute_ = Compute::kFloat32;
  const float* x_ = nullptr;
  int64_t m_ = 0, k_ = 0;
  const std::byte* scratch_ = nullptr;
};

/// Time spent in one op.
struct OpCounter {
  const char* name;  // "mobile_ft::packed_linear.out"
  int64_t calls = 0;
  double seconds = 0;
};

/// The settings and the state of the ops of one program, which owns it.
struct OpContext {
  OpContext();

  Compute compute = Compute::kFloat32;      // of linear layers and attention
  bool lora_a_gradient = true;              // false: ops leave the output of A's gradient as it is
  HalfLora half_lora;                       // of the adapter whose answers are computed; empty otherwise
  KvFormat kv_format = KvFormat::kFloat32;  // of the caches that attention_decode reads
  int64_t kv_row_bytes = 0;                 // of their rows, for which there is room; not of float32
  bool read_once = false;                   // weights are mappings whose pages are dropped behind a kernel
  std::vector<OutputRoom> outputs;          // buffers of the method that runs
  PackedInput packed_input;
  std::vector<OpCounter> counters;  // of all ops, in the order of their registration
};

/// While it lives, the ops that this thread runs use `context`. ExecuTorch passes only its own context to a kernel.
class CurrentContext {
 public:
  explicit CurrentContext(OpContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  /// The context of this thread; null if none is current.
  static OpContext* get();

 private:
  OpContext* before_;
};

}  // namespace mft
