#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/bundle/bundle.h"

namespace mft {

class Program;

/// Which of LoRA's matrices are trained; b: A stays as it is, as in LoRA-FA (arXiv 2308.03303) and FFA-LoRA (arXiv
/// 2403.12313).
enum class LoraTrain { kBoth, kB };
inline std::vector<const char*> names(LoraTrain) { return {"both", "b"}; }

/// One LoRA matrix in the flat parameter array: A [rank, in] or B [out, rank].
struct AdapterTensor {
  std::string name;  // PEFT's
  int64_t rows;
  int64_t cols;
  bool is_a;
  size_t offset;  // in floats
  size_t size() const { return static_cast<size_t>(rows * cols); }
};

/// Where every LoRA matrix lies in one flat float array: those of a unit together, its A's before its B's, so that what
/// of a unit is trained is one range. Gradients and AdamW's moments are of such ranges.
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
  /// Of `range`, what is trained.
  Range trained(size_t unit, LoraTrain train) const {
    return train == LoraTrain::kB ? Range{first_b_[unit], ranges_[unit].end} : ranges_[unit];
  }

 private:
  std::vector<Range> ranges_;
  std::vector<size_t> first_b_;
};

/// Whether `count` float32 values, aligned or not, are all finite.
bool all_finite(const std::byte* values, size_t count);

/// Reads `adapter_model.safetensors` in `folder`, of float32, float16 or bfloat16, into `parameters` [layout.size].
/// Names may have the prefix of another of Transformers' classes. Throws Error naming file and tensor where rank,
/// scale, names or shapes are not the bundle's, or a number is not finite.
void load_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout, float* parameters);

/// Writes `adapter_model.safetensors` and `adapter_config.json` into `folder`, as PEFT does.
void save_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout,
                  const float* parameters);

}  // namespace mft
