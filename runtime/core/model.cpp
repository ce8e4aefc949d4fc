#include "runtime/core/model.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/kernels/attention.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/linear_cross_entropy.h"
#include "runtime/kernels/rope.h"

namespace mft {
namespace {

size_t position_bytes(int64_t t) { return static_cast<size_t>(t) * sizeof(int64_t); }

/// Rounded up, so that the next tensor is aligned.
size_t saved_tensor_bytes(const SavedTensor& tensor, int64_t t) {
  return (static_cast<size_t>(tensor.values * t) * sizeof(float) + 63) / 64 * 64;
}

}  // namespace

Model::Model(const std::string& bundle_folder)
    : bundle_(bundle_folder),
      program_(bundle_.file("program.pte")),
      weights_(bundle_.file("weights.ptd")),
      layout_(bundle_, program_) {}

void Model::prepare(const std::string& adapter_folder, int64_t tokens) {
  if (tokens > bundle_.max_seq_len) {
    fail("a sequence of ", tokens, " tokens; the bundle's maximum is ", bundle_.max_seq_len,
         " (export with a larger --max-seq-len)");
  }
  program_.reserve_scratch(scratch_bytes(tokens));
  parameters_ = Buffer(layout_.size * sizeof(float));
  load_adapter(adapter_folder.empty() ? bundle_.folder : adapter_folder, bundle_, layout_, parameters());
}

void Model::push_unit(std::vector<Input>& inputs, size_t unit, const MappedWeights& weights) const {
  for (size_t i = 0; i < weights.size(); ++i) inputs.push_back({weights[i].data, weights[i].bytes});
  for (const AdapterTensor& tensor : layout_.units[unit]) {
    inputs.push_back({parameters() + tensor.offset, tensor.size() * sizeof(float)});
  }
}

void Model::embed(const int64_t* tokens, int64_t t, float* x) {
  const MappedWeights table = weights_.map(bundle_.embed_weights);
  program_.run("embed", {{tokens, position_bytes(t), t}, {table[0].data, table[0].bytes}},
               {{x, activation_bytes(t), t}});
}

std::vector<Input> Model::unit_inputs(size_t unit, const float* x, const int64_t* positions, int64_t t,
                                      const MappedWeights& weights) const {
  std::vector<Input> inputs{{x, activation_bytes(t), t}};
  if (bundle_.units[unit].attention) inputs.push_back({positions, position_bytes(t), t});
  push_unit(inputs, unit, weights);
  return inputs;
}

void Model::forward(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y) {
  const UnitInfo& info = bundle_.units[unit];
  const MappedWeights weights = weights_.map(info.weights);
  program_.run(info.kind + "_forward", unit_inputs(unit, x, positions, t, weights), {{y, activation_bytes(t), t}});
}

void Model::forward_save(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y, std::byte* saved) {
  const UnitInfo& info = bundle_.units[unit];
  const MappedWeights weights = weights_.map(info.weights);
  std::vector<Output> outputs{{y, activation_bytes(t), t}};
  for (const SavedTensor& tensor : info.saved) {
    outputs.push_back({saved, saved_tensor_bytes(tensor, t), t, tensor.token_dim});
    saved += saved_tensor_bytes(tensor, t);
  }
  program_.run(info.kind + "_forward_save", unit_inputs(unit, x, positions, t, weights), outputs);
}

void Model::backward(size_t unit, const float* dy, const float* x, const int64_t* positions, int64_t t,
                     const std::byte* saved, float* dx, float* gradients) {
  const UnitInfo& info = bundle_.units[unit];
  const MappedWeights weights = weights_.map(info.weights);
  std::vector<Input> inputs = unit_inputs(unit, x, positions, t, weights);
  inputs.insert(inputs.begin(), {dy, activation_bytes(t), t});
  if (saved != nullptr) {
    for (const SavedTensor& tensor : info.saved) {
      inputs.push_back({saved, saved_tensor_bytes(tensor, t), t, tensor.token_dim});
      saved += saved_tensor_bytes(tensor, t);
    }
  }
  std::vector<Output> outputs{{dx, activation_bytes(t), t}};
  const size_t begin = layout_.range(unit).begin;
  for (const AdapterTensor& tensor : layout_.units[unit]) {
    outputs.push_back({gradients + (tensor.offset - begin), tensor.size() * sizeof(float)});
  }
  program_.run(info.kind + (saved != nullptr ? "_backward" : "_backward_recompute"), inputs, outputs);
}

void Model::decode(size_t unit, const float* x, const int64_t* positions, int64_t t, float* k_cache, float* v_cache,
                   float* y) {
  const UnitInfo& info = bundle_.units[unit];
  if (!info.attention) return forward(unit, x, positions, t, y);
  const MappedWeights weights = weights_.map(info.weights);
  const size_t cache = static_cast<size_t>(bundle_.max_seq_len * key_size()) * sizeof(float);
  const size_t added = static_cast<size_t>(t * key_size());
  std::vector<Input> inputs{
      {x, activation_bytes(t), t}, {positions, position_bytes(t), t}, {k_cache, cache}, {v_cache, cache}};
  push_unit(inputs, unit, weights);
  // The new keys and values go straight behind the cached ones; the method only reads what lies before them.
  const size_t past = static_cast<size_t>(positions[0] * key_size());
  program_.run(info.kind + "_decode", inputs,
               {{y, activation_bytes(t), t},
                {k_cache + past, added * sizeof(float), t},
                {v_cache + past, added * sizeof(float), t}});
}

double Model::head(const float* x, const int64_t* targets, int64_t t, float* dx) {
  const MappedWeights weights = weights_.map(bundle_.head_weights);
  float loss = 0;
  program_.run("head",
               {{x, activation_bytes(t), t},
                {targets, position_bytes(t), t},
                {weights[0].data, weights[0].bytes},
                {weights[1].data, weights[1].bytes}},
               {{&loss, sizeof(loss)}, {dx, activation_bytes(t), t}});
  return loss;
}

double Model::head_loss(const float* x, const int64_t* targets, int64_t t) {
  const MappedWeights weights = weights_.map(bundle_.head_weights);
  float loss = 0;
  program_.run("head_loss",
               {{x, activation_bytes(t), t},
                {targets, position_bytes(t), t},
                {weights[0].data, weights[0].bytes},
                {weights[1].data, weights[1].bytes}},
               {{&loss, sizeof(loss)}});
  return loss;
}

void Model::logits(const float* x, int64_t t, float* out) {
  const MappedWeights weights = weights_.map(bundle_.head_weights);
  program_.run("logits",
               {{x, activation_bytes(t), t}, {weights[0].data, weights[0].bytes}, {weights[1].data, weights[1].bytes}},
               {{out, static_cast<size_t>(t * bundle_.vocab_size) * sizeof(float), t}});
}

size_t Model::scratch_bytes(int64_t tokens) const {
  const Bundle& b = bundle_;
  const int64_t queries = b.num_heads * b.head_dim;
  size_t most = rope_scratch_bytes(b.head_dim);
  const auto linear = [&](int64_t in, int64_t out) {
    most = std::max(most, linear_scratch_bytes(tokens, out, in, b.lora_rank));
  };
  linear(b.hidden_size, queries);
  linear(b.hidden_size, key_size());
  linear(queries, b.hidden_size);
  linear(b.hidden_size, b.intermediate_size);
  linear(b.intermediate_size, b.hidden_size);
  most = std::max(most, linear_scratch_bytes(1, b.vocab_size, b.hidden_size, 0));
  AttentionShape shape{};
  shape.t = tokens;
  shape.heads = b.num_heads;
  shape.kv_heads = b.num_kv_heads;
  shape.dim = b.head_dim;
  most = std::max(most, attention_scratch_bytes(shape));
  most = std::max(most, linear_cross_entropy_scratch_bytes(tokens, b.vocab_size, b.hidden_size));
  return most + 4096;  // the allocator aligns within it
}

size_t Model::saved_bytes(size_t unit, int64_t tokens) const {
  size_t bytes = 0;
  for (const SavedTensor& tensor : bundle_.units[unit].saved) bytes += saved_tensor_bytes(tensor, tokens);
  return bytes;
}

size_t Model::saved_layer_bytes(int64_t tokens) const {
  std::vector<size_t> bytes(static_cast<size_t>(bundle_.num_layers));
  for (size_t u = 0; u < bundle_.units.size(); ++u) {
    bytes[static_cast<size_t>(bundle_.units[u].layer)] += saved_bytes(u, tokens);
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

size_t Model::weight_window_bytes() const {
  size_t most = std::max(weights_.map(bundle_.head_weights).bytes(), weights_.map(bundle_.embed_weights).bytes());
  for (const UnitInfo& unit : bundle_.units) most = std::max(most, weights_.map(unit.weights).bytes());
  return most;
}

}  // namespace mft
