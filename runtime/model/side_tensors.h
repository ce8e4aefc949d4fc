#pragma once

#include <cstdint>
#include <map>

#include "runtime/base/buffer.h"
#include "runtime/bundle/bundle.h"

namespace mft {

/// What units have besides the residual stream, for the tokens of the last `Model::embed`: per-layer embeddings; and
/// the keys and values that a unit gives to later units, with the sums of their gradients. All are float32 [tokens,
/// width].
class SideTensors {
 public:
  /// Bytes for calls of up to `tokens` tokens; 0 for most bundles.
  static size_t bytes(const Bundle& bundle, int64_t tokens);

  SideTensors() = default;
  SideTensors(const Bundle& bundle, int64_t tokens);

  float* per_layer(int64_t layer) const { return buffer_.floats() + layer * per_layer_size_; }
  /// Keys (`which` 0) or values (1) of a unit that gives them.
  float* given(size_t unit, int which) const { return at(unit, which); }
  /// The sum of the gradients that the units above have added so far.
  float* gradient(size_t unit, int which) const { return at(unit, 2 + which); }
  /// Room for the gradients of one unit that takes keys and values.
  float* spare(int which) const { return spare_ + which * spare_size_; }
  void clear_gradients() const;
  /// All gradients, as one block.
  float* gradients() const { return gradients_; }
  size_t gradient_bytes() const { return gradient_bytes_; }
  const Buffer& buffer() const { return buffer_; }

 private:
  struct Places {
    float* given;
    float* gradient;
    int64_t size;  // of each of the two in them
  };

  float* at(size_t unit, int tensor) const {
    const Places& places = places_.at(unit);
    return (tensor < 2 ? places.given : places.gradient) + tensor % 2 * places.size;
  }

  Buffer buffer_;
  int64_t per_layer_size_ = 0;
  std::map<size_t, Places> places_;
  float* gradients_ = nullptr;
  size_t gradient_bytes_ = 0;
  float* spare_ = nullptr;
  int64_t spare_size_ = 0;
};

}  // namespace mft
