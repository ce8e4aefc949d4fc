#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/buffer.h"
#include "runtime/core/bundle.h"

namespace mft {

class Program;

/// One LoRA matrix in the flat parameter array: A [rank, in] or B [out, rank].
struct AdapterTensor {
  std::string name;  // PEFT's
  int64_t rows;
  int64_t cols;
  size_t offset;  // in floats
  size_t size() const { return static_cast<size_t>(rows * cols); }
};

/// Where every LoRA matrix lies in one flat float array. Parameters, gradients and both AdamW moments share it, and the
/// tensors of a unit lie together.
struct AdapterLayout {
  struct Range {
    size_t begin;
    size_t end;
    size_t size() const { return end - begin; }
  };

  AdapterLayout(const Bundle& bundle, const Program& program);

  std::vector<std::vector<AdapterTensor>> units;
  size_t size = 0;  // floats in total

  Range range(size_t unit) const;
};

/// Whether `count` float32 values, aligned or not, are all finite.
bool all_finite(const std::byte* values, size_t count);

/// Reads `adapter_model.safetensors` in `folder` into `parameters` [layout.size]. Throws Error naming file and tensor
/// where rank, scale, names or shapes are not the bundle's, or a number is not finite.
void load_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout, float* parameters);

/// Writes `adapter_model.safetensors` and `adapter_config.json` into `folder`, as PEFT does.
void save_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout,
                  const float* parameters);

}  // namespace mft
