#pragma once

#include <cstddef>
#include <cstdint>

namespace mft {

/// A copy in float16 of all LoRA parameters, for products of a few rows: A [rank, in] at the place that A has among the
/// parameters, and B at that of B, as `Lora` has it.
struct HalfLora {
  const float* parameters = nullptr;  // where the ops' inputs lie
  size_t size = 0;                    // of the parameters
  const uint16_t* halves = nullptr;
  float factor = 1;  // of each product of A and B
  bool off = false;  // the adapter changes nothing, and there is no copy

  bool has(const float* a) const { return parameters != nullptr && a >= parameters && a < parameters + size; }
  const uint16_t* of(const float* matrix) const { return halves + (matrix - parameters); }
};

}  // namespace mft
