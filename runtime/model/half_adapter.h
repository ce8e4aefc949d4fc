#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/buffer.h"
#include "runtime/bundle/adapter.h"
#include "runtime/ops/half_lora.h"

namespace mft {

/// The adapter as answers read it, token by token: in float16, half of the bytes.
class HalfAdapter {
 public:
  HalfAdapter() = default;
  /// Of parameters [layout.size]. If every B is zero, the adapter changes nothing and there is no copy.
  HalfAdapter(const AdapterLayout& layout, const float* parameters);

  /// Of a model whose adapter is off: zeros [size] stand in for the parameters.
  static HalfAdapter none(const Buffer& zeros);

  /// What ops read, while this lives and the parameters stay where they are.
  const HalfLora& lora() const { return lora_; }

 private:
  Buffer halves_;
  HalfLora lora_;
};

}  // namespace mft
