#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/bundle/bundle.h"

namespace mft {

class Program;

/// The LoRA matrices that are trained. With b, A is frozen, as in LoRA-FA (arXiv 2308.03303) and FFA-LoRA (arXiv
/// 2403.12313).
enum class LoraTrain { kBoth, kB };
inline std::vector<const char*> names(LoraTrain) { return {"both", "b"}; }

/// One LoRA matrix in the flat parameter array: A [rank, in] or B [out, rank].
struct AdapterTensor {
  std::string name;  // PEFT's name
  int64_t rows;
  int64_t cols;
  bool is_a;
  size_t offset;  // in floats
  size_t size() const { return static_cast<size_t>(rows * cols); }
};

/// The layout of all LoRA matrices in one flat float array. The matrices of a unit are contiguous, with all A's before
/// all B's, so that the trained part of a unit is one range. Gradients and AdamW's moments use such ranges.
struct AdapterLayout {
  struct Range {
    size_t begin;
    size_t end;
    size_t size() const { return end - begin; }
  };

  AdapterLayout(const Bundle& bundle, const Program& program);

  std::vector<std::vector<AdapterTensor>> units;  // tensors in the order of the methods' inputs, A and B in turn
  size_t size = 0;                                // floats in total

  Range range(size_t unit) const { return ranges_[unit]; }
  /// The trained part of `range`.
  Range trained(size_t unit, LoraTrain train) const {
    return train == LoraTrain::kB ? Range{first_b_[unit], ranges_[unit].end} : ranges_[unit];
  }

 private:
  std::vector<Range> ranges_;
  std::vector<size_t> first_b_;
};

/// Whether `count` float32 values, aligned or not, are all finite.
bool all_finite(const std::byte* values, size_t count);

/// Reads `adapter_model.safetensors` in `folder` (float32, float16 or bfloat16) into `parameters` [layout.size]. Names
/// may have the prefix of any of Transformers' classes. Throws Error, with the file and the tensor, if rank, scale,
/// names or shapes differ from the bundle's, or a value is not finite.
void load_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout, float* parameters);

/// Writes `adapter_model.safetensors` and `adapter_config.json` to `folder`, in PEFT's format.
void save_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout,
                  const float* parameters);

}  // namespace mft
