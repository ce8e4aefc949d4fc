#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/adapter.h"
#include "runtime/core/buffer.h"
#include "runtime/core/bundle.h"
#include "runtime/core/program.h"
#include "runtime/core/weight_store.h"

namespace mft {

/// A bundle ready to run, unit by unit. Activations are float32 [tokens, hidden_size] and belong to the caller; a
/// unit's weights are mapped for the call and dropped after it.
class Model {
 public:
  explicit Model(const std::string& bundle_folder);

  /// Loads LoRA parameters, the bundle's initial ones where `folder` is empty, and makes room for calls of up to
  /// `tokens` tokens.
  void prepare(const std::string& adapter_folder, int64_t tokens);

  void embed(const int64_t* tokens, int64_t t, float* x);
  void forward(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y);
  /// Like `forward`, and leaves in `saved` [saved_bytes(unit, t)] what `backward` needs.
  void forward_save(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y, std::byte* saved);
  /// dy -> dx, and the unit's LoRA gradients in the layout's order. Recomputes the forward from `x` where `saved` is
  /// null.
  void backward(size_t unit, const float* dy, const float* x, const int64_t* positions, int64_t t,
                const std::byte* saved, float* dx, float* gradients);
  /// Generation: like `forward` after positions[0] tokens in the caches [max_seq_len, kv_heads * head_dim]; appends
  /// the new keys and values. `x` goes through attention and MLP units alike.
  void decode(size_t unit, const float* x, const int64_t* positions, int64_t t, float* k_cache, float* v_cache,
              float* y);
  /// Summed loss over the targets, and its gradient to x.
  double head(const float* x, const int64_t* targets, int64_t t, float* dx);
  double head_loss(const float* x, const int64_t* targets, int64_t t);
  /// Logits [t, vocab_size].
  void logits(const float* x, int64_t t, float* out);

  const Bundle& bundle() const { return bundle_; }
  const AdapterLayout& layout() const { return layout_; }
  const Program& program() const { return program_; }
  float* parameters() const { return parameters_.floats(); }
  const Buffer& parameter_buffer() const { return parameters_; }
  int64_t key_size() const { return bundle_.num_kv_heads * bundle_.head_dim; }

  /// Bytes of what `forward_save` leaves.
  size_t saved_bytes(size_t unit, int64_t tokens) const;
  /// The most that the units of one layer leave.
  size_t saved_layer_bytes(int64_t tokens) const;
  /// Bytes of kernel scratch that calls of up to `tokens` tokens need.
  size_t scratch_bytes(int64_t tokens) const;
  /// Largest file-backed bytes mapped at one time.
  size_t weight_window_bytes() const;

 private:
  size_t activation_bytes(int64_t t) const { return static_cast<size_t>(t * bundle_.hidden_size) * sizeof(float); }
  std::vector<Input> unit_inputs(size_t unit, const float* x, const int64_t* positions, int64_t t,
                                 const MappedWeights& weights) const;
  void push_unit(std::vector<Input>& inputs, size_t unit, const MappedWeights& weights) const;

  Bundle bundle_;
  Program program_;
  WeightStore weights_;
  AdapterLayout layout_;
  Buffer parameters_;
};

}  // namespace mft
