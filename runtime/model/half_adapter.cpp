#include "runtime/model/half_adapter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/dispatch/kernels.h"

namespace mft {
namespace {

/// The power of two that brings the largest magnitude to 1 or somewhat below; float16 has few bits for small numbers.
/// At most 2^126, so that it is finite.
float power_of_two_over(float largest) {
  return largest > 0 ? std::exp2(std::min(-std::ceil(std::log2(largest)), 126.F)) : 1.F;
}

/// Where `Lora` has row i and column j of B.
int64_t place_in_panels(const AdapterTensor& b, int64_t i, int64_t j) {
  const int64_t first = i / kPanelRows * kPanelRows, rows = std::min<int64_t>(kPanelRows, b.rows - first);
  return first * b.cols + j * rows + i - first;
}

float largest_of(const AdapterLayout& layout, const float* parameters, bool is_a) {
  float largest = 0;
  for (const auto& unit : layout.units) {
    for (const AdapterTensor& tensor : unit) {
      if (tensor.is_a != is_a) continue;
      const float* values = parameters + tensor.offset;
      for (size_t i = 0; i < tensor.size(); ++i) largest = std::max(largest, std::abs(values[i]));
    }
  }
  return largest;
}

}  // namespace

HalfAdapter HalfAdapter::none(const Buffer& zeros) {
  HalfAdapter adapter;
  adapter.lora_.parameters = zeros.floats();
  adapter.lora_.size = zeros.size() / sizeof(float);
  adapter.lora_.off = true;
  return adapter;
}

HalfAdapter::HalfAdapter(const AdapterLayout& layout, const float* parameters) {
  const float largest_b = largest_of(layout, parameters, false);
  lora_.parameters = parameters;
  lora_.size = layout.size;
  lora_.off = largest_b == 0;
  if (lora_.off) return;
  const float by_a = power_of_two_over(largest_of(layout, parameters, true)), by_b = power_of_two_over(largest_b);
  halves_ = Buffer(layout.size * sizeof(uint16_t));
  auto* halves = reinterpret_cast<uint16_t*>(halves_.bytes());
  lora_.halves = halves;
  lora_.factor = 1 / (by_a * by_b);
  std::vector<float> scaled;
  for (const auto& unit : layout.units) {
    for (const AdapterTensor& tensor : unit) {
      const float* values = parameters + tensor.offset;
      scaled.resize(tensor.size());
      for (int64_t i = 0; i < tensor.rows; ++i) {
        for (int64_t j = 0; j < tensor.cols; ++j) {
          const int64_t to = tensor.is_a ? i * tensor.cols + j : place_in_panels(tensor, i, j);
          scaled[static_cast<size_t>(to)] = values[i * tensor.cols + j] * (tensor.is_a ? by_a : by_b);
        }
      }
      kernels().to_half(scaled.data(), static_cast<int64_t>(tensor.size()), halves + tensor.offset);
    }
  }
}

}  // namespace mft
