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
  const Bundle& b = bundle_;
  const int64_t queries = b.num_heads * b.head_dim;
  const bool convolves =
      std::any_of(b.kinds.begin(), b.kinds.end(), [](const UnitKind& k) { return k.state_size > 0; });
  size_t most = kernels().rope_scratch_bytes(b.head_dim);
  const auto linear = [&](int64_t in, int64_t out) {
    most = std::max(most, kernels().linear_scratch_bytes(compute, tokens, out, in, b.lora_rank));
  };
  linear(b.hidden_size, queries);
  linear(b.hidden_size, b.num_kv_heads * b.head_dim);
  linear(queries, b.hidden_size);
  linear(b.hidden_size, b.intermediate_size);
  linear(b.intermediate_size, b.hidden_size);
  if (convolves) linear(b.hidden_size, 3 * b.hidden_size);
  AttentionShape shape{};
  shape.t = tokens;
  shape.heads = b.num_heads;
  shape.kv_heads = b.num_kv_heads;
  shape.dim = b.head_dim;
  return std::max(most, kernels().attention_scratch_bytes(shape)) + kScratchSlack;
}

size_t Model::head_scratch_bytes(int64_t tokens, Compute compute) const {
  const Bundle& b = bundle_;
  return std::max(kernels().linear_scratch_bytes(compute, 1, b.vocab_size, b.hidden_size, 0),
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

}  // namespace mft
