#include "runtime/model/side_tensors.h"

#include <algorithm>

namespace mft {
namespace {

/// Numbers in the parts of the buffer: per-layer embeddings, keys and values, their gradients, and the spare ones.
struct Sizes {
  int64_t per_layer = 0, given = 0, spare = 0;
  int64_t total() const { return per_layer + 2 * given + spare; }
};

Sizes sizes_of(const Bundle& bundle, int64_t tokens) {
  Sizes sizes;
  sizes.per_layer = bundle.num_layers * tokens * bundle.per_layer.width;
  for (size_t u = 0; u < bundle.units.size(); ++u) {
    const UnitKind& kind = bundle.kind_of(u);
    if (kind.side != Side::kGives) continue;
    sizes.given += 2 * tokens * kind.side_width;
    sizes.spare = std::max(sizes.spare, 2 * tokens * kind.side_width);
  }
  return sizes;
}

}  // namespace

size_t SideTensors::bytes(const Bundle& bundle, int64_t tokens) {
  return static_cast<size_t>(sizes_of(bundle, tokens).total()) * sizeof(float);
}

SideTensors::SideTensors(const Bundle& bundle, int64_t tokens)
    : buffer_(bytes(bundle, tokens)), per_layer_size_(tokens * bundle.per_layer.width) {
  const Sizes sizes = sizes_of(bundle, tokens);
  float* given = buffer_.floats() + sizes.per_layer;
  gradients_ = given + sizes.given;
  gradient_bytes_ = static_cast<size_t>(sizes.given) * sizeof(float);
  spare_ = gradients_ + sizes.given;
  spare_size_ = sizes.spare / 2;
  int64_t begin = 0;
  for (size_t u = 0; u < bundle.units.size(); ++u) {
    const UnitKind& kind = bundle.kind_of(u);
    if (kind.side != Side::kGives) continue;
    const int64_t size = tokens * kind.side_width;
    places_[u] = {given + begin, gradients_ + begin, size};
    begin += 2 * size;
  }
}

void SideTensors::clear_gradients() const { std::fill_n(gradients_, gradient_bytes_ / sizeof(float), 0.0F); }

}  // namespace mft
