/// The sizes of a model's buffers, which the plan adds up before any of them is allocated.

#include <algorithm>

#include "runtime/dispatch/kernels.h"
#include "runtime/model/model.h"
#include "runtime/platform/scratch.h"

namespace mft {
namespace {

constexpr size_t kScratchSlack = 4096;  // the allocator aligns within it

}  // namespace

size_t Model::scratch_bytes(int64_t tokens, Compute compute, size_t staging) const {
  constexpr Compute kValidation = Compute::kFloat32;  // which stores nothing
  return std::max({unit_scratch_bytes(tokens, compute) + staging, head_scratch_bytes(tokens, compute),
                   unit_scratch_bytes(tokens, kValidation), head_scratch_bytes(tokens, kValidation)});
}

size_t Model::unit_scratch_bytes(int64_t tokens, Compute compute) const {
  size_t most = 0;
  for (const UnitKind& kind : bundle_.kinds) {
    for (const LinearShape& linear : kind.linears) {
      most = std::max(most, kernels().linear_scratch_bytes(compute, tokens, linear.out_features, linear.in_features,
                                                           bundle_.lora_rank));
    }
    if (kind.delta_net.heads > 0) {
      DeltaNetShape shape = kind.delta_net;
      shape.t = tokens;
      most = std::max(most, kernels().delta_net_scratch_bytes(shape));
    }
    if (kind.experts.experts > 0) {
      ExpertsShape shape = kind.experts;
      shape.t = std::min(tokens, kind.tokens);
      most = std::max(most, kernels().experts_scratch_bytes(compute, shape));
    }
    if (kind.mamba2.heads > 0) {
      Mamba2Shape shape = kind.mamba2;
      shape.t = tokens;
      most = std::max(most, kernels().mamba2_scratch_bytes(shape));
    }
    if (kind.heads == 0) continue;
    AttentionShape shape{};
    shape.t = tokens;
    shape.heads = kind.heads;
    shape.kv_heads = kind.kv_heads;
    shape.dim = kind.head_dim;
    most = std::max(most, kernels().attention_scratch_bytes(compute, shape));
    most = std::max(most, kernels().rope_scratch_bytes(kind.head_dim / 2));
  }
  return most + kScratchSlack;
}

size_t Model::head_scratch_bytes(int64_t tokens, Compute compute) const {
  const Bundle& b = bundle_;
  return std::max(kernels().linear_scratch_bytes(compute, kFewRows, b.vocab_size, b.hidden_size, 0),
                  kernels().linear_cross_entropy_scratch_bytes(compute, std::min(tokens, b.head_tokens), b.vocab_size,
                                                               b.hidden_size)) +
         kScratchSlack;
}

size_t Model::saved_bytes(const UnitKind& kind, int64_t tokens, int64_t mlp_tokens) const {
  const int64_t step = std::min(tokens, kind.call_tokens(mlp_tokens));
  size_t bytes = 0;
  for (int64_t i = 0; i < tokens; i += step) {
    for (const SavedTensor& tensor : kind.saved) bytes += tensor.stored_bytes(std::min(step, tokens - i));
  }
  return bytes;
}

size_t Model::staging_bytes(int64_t tokens, int64_t mlp_tokens) const {
  size_t most = 0;
  for (const UnitKind& kind : bundle_.kinds) {
    size_t bytes = 0;
    for (const SavedTensor& tensor : kind.saved) {
      if (tensor.converted()) bytes += tensor.bytes(std::min(tokens, kind.call_tokens(mlp_tokens)));
    }
    most = std::max(most, bytes);
  }
  return (most + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

size_t Model::no_adapter_bytes() const {
  size_t most = 0;
  for (const auto& unit : layout_.units) {
    for (const AdapterTensor& tensor : unit) most = std::max(most, tensor.size());
  }
  return most * sizeof(float);
}

size_t Model::weight_bytes(size_t unit) const {
  if (weight_bytes_.empty()) {
    for (const UnitInfo& info : bundle_.units) weight_bytes_.push_back(weights_.resident_bytes(info.weights));
    weight_bytes_.push_back(weights_.resident_bytes(bundle_.head_weights));
  }
  return weight_bytes_[unit];
}

size_t Model::per_layer_weight_bytes() const {
  const std::vector<std::string>& weights = bundle_.per_layer.weights;
  return weights.empty() ? 0 : weights_.resident_bytes({weights[0], weights[1]});
}

}  // namespace mft
