#include "runtime/model/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

size_t position_bytes(int64_t t) { return static_cast<size_t>(t) * sizeof(int64_t); }

constexpr int64_t kEmbedTokens = 4;

/// Between what the methods take and what is kept, for `n` tokens of a tensor that is not kept as it is.
void shrink(const SavedTensor& tensor, const float* from, int64_t n, std::byte* to) {
  const int64_t count = tensor.values * n;
  if (tensor.stored == Stored::kHalf) kernels().to_half(from, count, reinterpret_cast<uint16_t*>(to));
  if (tensor.stored == Stored::kInt8Blocks) kernels().to_int8(from, count, reinterpret_cast<Int8Block*>(to));
  if (tensor.stored == Stored::kInt4Blocks) kernels().to_int4(from, count, reinterpret_cast<Int4Block*>(to));
}

void expand(const SavedTensor& tensor, const std::byte* from, int64_t n, float* to) {
  const int64_t count = tensor.values * n;
  if (tensor.stored == Stored::kHalf) kernels().from_half(reinterpret_cast<const uint16_t*>(from), count, to);
  if (tensor.stored == Stored::kInt8Blocks) kernels().from_int8(reinterpret_cast<const Int8Block*>(from), count, to);
  if (tensor.stored == Stored::kInt4Blocks) kernels().from_int4(reinterpret_cast<const Int4Block*>(from), count, to);
}

/// While it lives, the pages of weights leave the process behind the kernels that read them.
struct ReadOnce {
  ReadOnce(OpContext& of, bool read_once) : context(of) { context.read_once = read_once; }
  ~ReadOnce() { context.read_once = false; }
  ReadOnce(const ReadOnce&) = delete;
  ReadOnce& operator=(const ReadOnce&) = delete;

  OpContext& context;
};

}  // namespace

Model::Model(const std::string& bundle_folder)
    : bundle_(bundle_folder),
      program_(bundle_.verified("program.pte")),
      weights_(bundle_.file("weights.ptd"), bundle_.weights),
      layout_(bundle_, program_) {}

void Model::read_scales() {
  scales_.clear();
  for (const UnitInfo& unit : bundle_.units) {
    float& scale = scales_.emplace_back(1.0F);
    if (unit.scale.empty()) continue;
    const MappedWeights weight = weights_.map({unit.scale});
    if (weight[0].bytes == sizeof(scale)) std::memcpy(&scale, weight[0].data, sizeof(scale));
    if (weight[0].bytes != sizeof(scale) || !std::isfinite(scale)) {
      fail(bundle_.file("weights.ptd"), ": ", unit.scale, " must be one finite number");
    }
  }
}

void Model::prepare(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                    int64_t mlp_tokens) {
  if (claimed_) fail("a trainer uses this model; open the bundle again to use it for something else");
  make_ready(adapter_folder, tokens, threads, Compute::kInt8, mlp_tokens);
  use_compute(compute);
}

void Model::make_ready(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                       int64_t mlp_tokens) {
  if (tokens > bundle_.max_seq_len) {
    fail("a sequence has ", tokens, " tokens; the bundle's maximum is ", bundle_.max_seq_len,
         " (export with a larger --max-seq-len)");
  }
  const ThreadParts parts(threads);
  threads_ = thread_count();
  use_compute(room_ = compute);
  tokens_ = tokens;
  mlp_tokens_ = mlp_tokens;
  staging_bytes_ = staging_bytes(tokens, mlp_tokens);
  const size_t scratch = scratch_bytes(tokens, compute, staging_bytes_);
  program_.reserve_scratch(scratch, staging_bytes_);
  staging_ = program_.scratch().bytes() + scratch - staging_bytes_;
  parameters_ = std::make_shared<Buffer>(layout_.size * sizeof(float));
  no_adapter_ = Buffer(no_adapter_bytes());
  side_ = SideTensors(bundle_, tokens);
  adapter_on_ = true;
  train_lora(LoraTrain::kBoth);
  read_scales();
  load_adapter_into(adapter_folder, parameters());
}

void Model::load_adapter_into(const std::string& folder, float* parameters) const {
  if (folder.empty()) {
    for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) bundle_.verified(name);
  }
  load_adapter(folder.empty() ? bundle_.folder : folder, bundle_, layout_, parameters);
}

void Model::train_lora(LoraTrain train) {
  lora_train_ = train;
  program_.op_context().lora_a_gradient = train == LoraTrain::kBoth;
}

Model::Claim::Claim(Model& model) : model_(model) {
  if (model.claimed_.exchange(true)) {
    fail("a trainer already uses this model; open the bundle again for another trainer");
  }
}

void Model::push_unit(std::vector<Input>& inputs, size_t unit, const MappedWeights& weights) const {
  for (size_t i = 0; i < weights.size(); ++i) inputs.push_back({weights[i].data, weights[i].bytes});
  for (const AdapterTensor& tensor : layout_.units[unit]) {
    const float* values = adapter_on_ ? parameters() + tensor.offset : no_adapter_.floats();
    inputs.push_back({values, tensor.size() * sizeof(float)});
  }
}

void Model::run(const std::string& unit, const std::string& method, const std::vector<Input>& inputs,
                const std::vector<Output>& outputs) {
  const double begin = now();
  const ThreadParts parts(threads_);
  program_.run(method, inputs, outputs);
  if (observer_) observer_(unit, method, begin, now());
}

void Model::keep_resident(size_t units) {
  resident_.clear();
  for (size_t u = 0; u < std::min(units, bundle_.units.size()); ++u) {
    resident_.push_back(map_unit(u));
  }
  if (units > bundle_.units.size()) resident_.push_back(map_unit(bundle_.units.size()));
}

/// The weights of a unit, or of the head. Which experts are read is known only when they compute. The kernel reads
/// ahead beyond a mapping, so in a model with experts all weights are read when they are asked for, and the others are
/// asked for here.
MappedWeights Model::map_unit(size_t unit) {
  const bool is_head = unit == bundle_.units.size();
  MappedWeights weights = weights_.map(is_head ? bundle_.head_weights : bundle_.units[unit].weights);
  if (!bundle_.has_experts()) return weights;
  weights.expect_random_access();
  if (is_head || bundle_.kind_of(unit).experts.experts == 0) weights.prefetch();
  return weights;
}

const MappedWeights& Model::weights_of(size_t unit, size_t next) {
  current_ = {};  // first of all: the plan counts on one unit's weights beside the resident ones
  if (unit < resident_.size()) return resident_[unit];
  if (unit == next_unit_) {
    current_ = std::move(next_);
  } else {
    current_ = map_unit(unit);
  }
  next_ = {};
  next_unit_ = SIZE_MAX;
  if (next < bundle_.units.size() && next >= resident_.size()) {
    next_ = map_unit(next);
    if (!bundle_.has_experts()) next_.prefetch();
    next_unit_ = next;
  }
  return current_;
}

void Model::embed(const int64_t* tokens, int64_t t, float* x) {
  current_ = {};
  const MappedWeights table = weights_.map(bundle_.embed_weights);
  table.expect_random_access();
  // A row brings the pages around it into the process, up to 2 MB of them where the page cache keeps large folios.
  for (int64_t i = 0; i < t; i += kEmbedTokens) {
    const int64_t n = std::min(kEmbedTokens, t - i);
    run("embed", "embed", {{tokens + i, position_bytes(n), n}, {table[0].data, table[0].bytes}},
        {{x + i * bundle_.hidden_size, activation_bytes(n), n}});
    table.drop();
  }
  if (bundle_.per_layer.width > 0) embed_per_layer(tokens, t, x);
}

/// Reads the rows of each token for all layers, which lie together in the table, and adds to those of each layer what
/// its part of the linear layer makes of the embeddings x.
void Model::embed_per_layer(const int64_t* tokens, int64_t t, const float* x) {
  const PerLayer& per_layer = bundle_.per_layer;
  const int64_t layers = bundle_.num_layers, width = per_layer.width;
  const auto row_bytes = [&](int64_t rows) { return static_cast<size_t>(rows * width) * sizeof(float); };
  {
    const MappedWeights table = weights_.map({per_layer.weights[2]});
    table.expect_random_access();
    std::vector<int64_t> rows(static_cast<size_t>(layers));
    std::vector<float> values(static_cast<size_t>(layers * width));
    for (int64_t i = 0; i < t; ++i) {
      std::iota(rows.begin(), rows.end(), tokens[i] * layers);
      run("embed", "per_layer_rows", {{rows.data(), position_bytes(layers)}, {table[0].data, table[0].bytes}},
          {{values.data(), row_bytes(layers)}});
      for (int64_t layer = 0; layer < layers; ++layer) {
        std::copy_n(values.data() + layer * width, width, side_.per_layer(layer) + i * width);
      }
      if (i % kEmbedTokens == kEmbedTokens - 1) table.drop();
    }
  }
  const MappedWeights linear = weights_.map({per_layer.weights[0], per_layer.weights[1]});
  const size_t part = linear[1].bytes / static_cast<size_t>(layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::byte* weight = static_cast<const std::byte*>(linear[1].data) + static_cast<size_t>(layer) * part;
    for (int64_t i = 0; i < t; i += per_layer.tokens) {
      const int64_t n = std::min(per_layer.tokens, t - i);
      float* e = side_.per_layer(layer) + i * width;
      // The last op, which is elementwise, reads e and writes the result in its place.
      run("embed", "per_layer_inputs",
          {{x + i * bundle_.hidden_size, activation_bytes(n), n},
           {e, row_bytes(n), n},
           {linear[0].data, linear[0].bytes},
           {weight, part}},
          {{e, row_bytes(n), n}});
    }
  }
}

void Model::scale(size_t unit, int64_t t, float* values) const {
  const float factor = scales_[unit];
  if (factor == 1) return;
  for (int64_t i = 0; i < t * bundle_.hidden_size; ++i) values[i] *= factor;
}

/// The inputs for `t` tokens from token `first` of the sequence on.
std::vector<Input> Model::unit_inputs(size_t unit, const float* x, const int64_t* positions, int64_t first, int64_t t,
                                      const MappedWeights& weights) const {
  const UnitKind& kind = bundle_.kind_of(unit);
  std::vector<Input> inputs{{x, activation_bytes(t), t}};
  if (kind.takes_positions) inputs.push_back({positions, position_bytes(t), t});
  const size_t side_bytes = static_cast<size_t>(t * kind.side_width) * sizeof(float);
  if (kind.side == Side::kTakes) {
    for (const int which : {0, 1}) {
      inputs.push_back({side_.given(bundle_.units[unit].giver, which) + first * kind.side_width, side_bytes, t});
    }
  }
  if (kind.side == Side::kPerLayer) {
    inputs.push_back({side_.per_layer(bundle_.units[unit].layer) + first * kind.side_width, side_bytes, t});
  }
  push_unit(inputs, unit, weights);
  return inputs;
}

/// The outputs for the keys and values that the unit gives.
void Model::push_given(size_t unit, int64_t t, std::vector<Output>& outputs) const {
  const UnitKind& kind = bundle_.kind_of(unit);
  if (kind.side != Side::kGives) return;
  for (const int which : {0, 1}) {
    outputs.push_back({side_.given(unit, which), static_cast<size_t>(t * kind.side_width) * sizeof(float), t});
  }
}

void Model::forward(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const int64_t step = std::min(t, kind.call_tokens(mlp_tokens_));
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    std::vector<Output> outputs{{y + at, activation_bytes(n), n}};
    push_given(unit, n, outputs);
    run(info.name, kind.name + "_forward", unit_inputs(unit, x + at, positions, i, n, weights), outputs);
  }
  scale(unit, t, y);
}

/// The outputs of `<kind>_forward_save` for n tokens. Tensors that are kept as they are go to their place behind
/// `saved`, the others to the staging buffer.
void Model::push_saved_outputs(const UnitKind& kind, int64_t n, std::byte* saved, std::vector<Output>& outputs) const {
  std::byte* staging = staging_;
  for (const SavedTensor& tensor : kind.saved) {
    const size_t left = static_cast<size_t>(staging_ + staging_bytes_ - staging);
    outputs.push_back(
        {tensor.converted() ? staging : saved, tensor.converted() ? left : tensor.bytes(n), n, tensor.token_dim});
    if (tensor.converted()) staging += tensor.bytes(n);
    saved += tensor.stored_bytes(n);
  }
}

/// Converts what the method left in the staging buffer. Returns the end of what is stored behind `saved`.
std::byte* Model::store_staged(const UnitKind& kind, int64_t n, std::byte* saved) const {
  const std::byte* staging = staging_;
  for (const SavedTensor& tensor : kind.saved) {
    if (tensor.converted()) {
      shrink(tensor, reinterpret_cast<const float*>(staging), n, saved);
      staging += tensor.bytes(n);
    }
    saved += tensor.stored_bytes(n);
  }
  return saved;
}

/// The inputs of `<kind>_backward` for n tokens, converted back in the staging buffer. Returns the end of what was read
/// behind `saved`.
const std::byte* Model::push_saved_inputs(const UnitKind& kind, int64_t n, const std::byte* saved,
                                          std::vector<Input>& inputs) const {
  std::byte* staging = staging_;
  for (const SavedTensor& tensor : kind.saved) {
    if (tensor.converted()) expand(tensor, saved, n, reinterpret_cast<float*>(staging));
    inputs.push_back({tensor.converted() ? staging : saved, tensor.bytes(n), n, tensor.token_dim});
    if (tensor.converted()) staging += tensor.bytes(n);
    saved += tensor.stored_bytes(n);
  }
  return saved;
}

void Model::forward_save(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y, std::byte* saved) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const ThreadParts parts(threads_);
  const int64_t step = std::min(t, kind.call_tokens(mlp_tokens_));
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    std::vector<Output> outputs{{y + at, activation_bytes(n), n}};
    push_given(unit, n, outputs);
    push_saved_outputs(kind, n, saved, outputs);
    run(info.name, kind.name + "_forward_save", unit_inputs(unit, x + at, positions, i, n, weights), outputs);
    saved = store_staged(kind, n, saved);
  }
  scale(unit, t, y);
}

void Model::backward(size_t unit, const UnitBackward& call, size_t next) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, next);
  const ThreadParts parts(threads_);
  const int64_t t = call.tokens, step = std::min(t, kind.call_tokens(mlp_tokens_));
  const std::string method = kind.name + (call.saved != nullptr ? "_backward" : "_backward_recompute");
  const float* x = call.x != nullptr ? call.x : call.dy;  // the method has this input even if it does not read it
  if ((call.gradients == nullptr || call.add || step < t) && call.spare == nullptr) {
    fail("accumulating or discarding gradients requires a spare gradient buffer");
  }
  const std::byte* saved = call.saved;
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    std::vector<Input> inputs = unit_inputs(unit, x + at, call.positions, i, n, weights);
    insert_given(unit, n, inputs);
    inputs.insert(inputs.begin(), {call.dy + at, activation_bytes(n), n});
    if (saved != nullptr) saved = push_saved_inputs(kind, n, saved, inputs);
    std::vector<Output> outputs{{call.dx + at, activation_bytes(n), n}};
    push_taken_gradients(kind, n, outputs);
    const bool overwrite = call.gradients != nullptr && !call.add && i == 0;
    push_gradients(unit, overwrite ? call.gradients : call.spare, outputs);
    run(info.name, method, inputs, outputs);
    if (call.gradients != nullptr && !overwrite) {
      const auto count = static_cast<int64_t>(layout_.trained(unit, lora_train_).size());
      kernels().add(call.gradients, call.spare, count, call.gradients);
    }
    if (kind.side == Side::kTakes) {
      for (const int which : {0, 1}) {
        float* sum = side_.gradient(info.giver, which);
        kernels().add(sum, side_.spare(which), n * kind.side_width, sum);
      }
    }
  }
}

/// Inserts what the backward of a unit that gives keys and values has besides: their gradients behind that of y, which
/// comes before the others, and themselves behind the positions.
void Model::insert_given(size_t unit, int64_t t, std::vector<Input>& inputs) const {
  const UnitKind& kind = bundle_.kind_of(unit);
  if (kind.side != Side::kGives) return;
  const size_t bytes = static_cast<size_t>(t * kind.side_width) * sizeof(float);
  inputs.insert(inputs.begin() + 2, {{side_.given(unit, 0), bytes, t}, {side_.given(unit, 1), bytes, t}});
  inputs.insert(inputs.begin(), {{side_.gradient(unit, 0), bytes, t}, {side_.gradient(unit, 1), bytes, t}});
}

/// The outputs for the gradients of keys and values that a unit takes.
void Model::push_taken_gradients(const UnitKind& kind, int64_t t, std::vector<Output>& outputs) const {
  if (kind.side != Side::kTakes) return;
  const size_t bytes = static_cast<size_t>(t * kind.side_width) * sizeof(float);
  for (const int which : {0, 1}) outputs.push_back({side_.spare(which), bytes, t});
}

/// The outputs for the gradients of a unit's LoRA parameters: to `gradients` for those that are trained.
void Model::push_gradients(size_t unit, float* gradients, std::vector<Output>& outputs) const {
  const size_t begin = layout_.trained(unit, lora_train_).begin;
  for (const AdapterTensor& tensor : layout_.units[unit]) {
    // The op writes nothing to an output whose tensor is not trained, but the method wants a place for it.
    float* values = tensor.offset < begin ? parameters() + tensor.offset : gradients + tensor.offset - begin;
    outputs.push_back({values, tensor.size() * sizeof(float)});
  }
}

size_t DecodeMemory::cache_bytes(const UnitKind& kind, KvFormat format, int64_t max_seq_len) {
  if (kind.cache_width == 0) return 0;
  const auto rows = static_cast<size_t>(max_seq_len * kv_row_bytes(format, kind.kv_heads, kind.head_dim));
  return (rows + 63) / 64 * 64;
}

void Model::decode(size_t unit, const float* x, const int64_t* positions, int64_t t, const DecodeMemory& memory,
                   float* y) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  if (!kind.decodes()) return forward(unit, x, positions, t, y);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const KvFormat format = program_.op_context().kv_format;
  const bool takes = kind.side == Side::kTakes;
  const int64_t width = takes ? kind.side_width : kind.cache_width;
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  std::vector<Input> inputs{{x, activation_bytes(t), t}, {positions, position_bytes(t), t}};
  std::vector<Output> outputs{{y, activation_bytes(t), t}};
  if (width > 0) {
    const int64_t row = kv_row_bytes(format, kind.kv_heads, kind.head_dim);
    program_.op_context().kv_row_bytes = row;
    for (uint8_t* cache : {memory.first, memory.second}) inputs.push_back({cache, bytes(bundle_.max_seq_len * width)});
    float* fresh = memory.fresh;
    for (uint8_t* cache : {memory.first, memory.second}) {
      // In float32, the new ones are computed where they stay; those that a unit takes are there in any format.
      float* place = reinterpret_cast<float*>(cache + positions[0] * row);
      if (takes) {
        inputs.push_back({place, bytes(t * width), t});
      } else {
        outputs.push_back({format == KvFormat::kFloat32 ? place : fresh, bytes(t * width), t});
        fresh += t * width;
      }
    }
  }
  float* state = nullptr;
  float* next = nullptr;
  if (kind.state_size > 0) {
    const size_t cached = DecodeMemory::cache_bytes(kind, format, bundle_.max_seq_len);
    state = reinterpret_cast<float*>(memory.first + cached);
    next = reinterpret_cast<float*>(memory.second + cached);
    inputs.push_back({state, bytes(kind.state_size)});
    outputs.push_back({next, bytes(kind.state_size)});
  }
  push_unit(inputs, unit, weights);
  run(info.name, kind.name + "_decode", inputs, outputs);
  scale(unit, t, y);
  std::copy_n(next, kind.state_size, state);
}

void Model::head_call(const char* method, const float* x, const int64_t* targets, int64_t t, float* losses, float* dx,
                      size_t next) {
  const size_t unit = bundle_.units.size();
  const MappedWeights& weights = weights_of(unit, next);
  const ReadOnce read_once(program_.op_context(), unit >= resident_.size());
  for (int64_t i = 0; i < t; i += bundle_.head_tokens) {
    const int64_t n = std::min(bundle_.head_tokens, t - i), at = i * bundle_.hidden_size;
    std::vector<Output> outputs{{losses + i, static_cast<size_t>(n) * sizeof(float), n}};
    if (dx != nullptr) outputs.push_back({dx + at, activation_bytes(n), n});
    run("head", method,
        {{x + at, activation_bytes(n), n},
         {targets + i, position_bytes(n), n},
         {weights[0].data, weights[0].bytes},
         {weights[1].data, weights[1].bytes}},
        outputs);
  }
}

void Model::head(const float* x, const int64_t* targets, int64_t t, float* losses, float* dx, size_t next) {
  side_.clear_gradients();
  head_call("head", x, targets, t, losses, dx, next);
}

void Model::head_loss(const float* x, const int64_t* targets, int64_t t, float* losses) {
  head_call("head_loss", x, targets, t, losses, nullptr, 0);
}

void Model::logits(const float* x, int64_t t, float* out) {
  const size_t unit = bundle_.units.size();
  const MappedWeights& weights = weights_of(unit, 0);
  const ReadOnce read_once(program_.op_context(), unit >= resident_.size());
  for (int64_t i = 0; i < t; i += bundle_.head_tokens) {
    const int64_t n = std::min(bundle_.head_tokens, t - i);
    run("head", "logits",
        {{x + i * bundle_.hidden_size, activation_bytes(n), n},
         {weights[0].data, weights[0].bytes},
         {weights[1].data, weights[1].bytes}},
        {{out + i * bundle_.vocab_size, static_cast<size_t>(n * bundle_.vocab_size) * sizeof(float), n}});
  }
}

}  // namespace mft
