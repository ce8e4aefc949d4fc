#include "runtime/model/model.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/ops/compute.h"
#include "runtime/platform/sweep.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

size_t position_bytes(int64_t t) { return static_cast<size_t>(t) * sizeof(int64_t); }

constexpr int64_t kEmbedTokens = 4;
constexpr size_t kScratchSlack = 4096;  // the allocator aligns within it

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

/// While it lives, the pages of `weight` leave the process behind a kernel that reads them front to back.
struct Sweep {
  explicit Sweep(const MappedWeights::Weight& weight) {
    const uint8_t* begin = static_cast<const uint8_t*>(weight.data);
    set_sweep(begin, begin + weight.bytes);
  }
  ~Sweep() { set_sweep(nullptr, nullptr); }
};

}  // namespace

Model::Model(const std::string& bundle_folder)
    : bundle_(bundle_folder),
      program_(bundle_.verified("program.pte")),
      weights_(bundle_.file("weights.ptd"), bundle_.weights),
      layout_(bundle_, program_) {}

void Model::prepare(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                    int64_t mlp_tokens) {
  if (claimed_) fail("a trainer works on this model; open the bundle again for something else");
  make_ready(adapter_folder, tokens, threads, compute, mlp_tokens);
}

void Model::make_ready(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                       int64_t mlp_tokens) {
  if (tokens > bundle_.max_seq_len) {
    fail("a sequence of ", tokens, " tokens; the bundle's maximum is ", bundle_.max_seq_len,
         " (export with a larger --max-seq-len)");
  }
  set_thread_parts(threads);
  threads_ = thread_count();
  compute_ = compute;
  mlp_tokens_ = mlp_tokens;
  staging_bytes_ = staging_bytes(tokens, mlp_tokens);
  const size_t scratch = scratch_bytes(tokens, compute, staging_bytes_);
  program_.reserve_scratch(scratch, staging_bytes_);
  staging_ = program_.scratch().bytes() + scratch - staging_bytes_;
  parameters_ = Buffer(layout_.size * sizeof(float));
  no_adapter_ = Buffer(no_adapter_bytes());
  adapter_on_ = true;
  lora_train_ = LoraTrain::kBoth;
  if (adapter_folder.empty()) {
    for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) bundle_.verified(name);
  }
  load_adapter(adapter_folder.empty() ? bundle_.folder : adapter_folder, bundle_, layout_, parameters());
}

Model::Claim::Claim(Model& model) : model_(model) {
  if (model.claimed_) fail("a trainer works on this model already; open the bundle again for another");
  model.claimed_ = true;
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
  set_thread_parts(threads_);  // another model may have run meanwhile
  set_compute(compute_);
  set_lora_a_gradient(lora_train_ == LoraTrain::kBoth);
  program_.run(method, inputs, outputs);
  if (observer_) observer_(unit, method, begin, now());
}

void Model::keep_resident(size_t units) {
  resident_.clear();
  for (size_t u = 0; u < std::min(units, bundle_.units.size()); ++u) {
    resident_.push_back(weights_.map(bundle_.units[u].weights));
  }
  if (units > bundle_.units.size()) resident_.push_back(weights_.map(bundle_.head_weights));
}

const MappedWeights& Model::weights_of(size_t unit, size_t next) {
  current_ = {};  // first of all: the plan counts on one unit's weights beside the resident ones
  if (unit < resident_.size()) return resident_[unit];
  if (unit == next_unit_) {
    current_ = std::move(next_);
  } else {
    current_ = weights_.map(unit < bundle_.units.size() ? bundle_.units[unit].weights : bundle_.head_weights);
  }
  next_ = {};
  next_unit_ = SIZE_MAX;
  if (next < bundle_.units.size() && next >= resident_.size()) {
    next_ = weights_.map(bundle_.units[next].weights);
    next_.prefetch();
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
}

std::vector<Input> Model::unit_inputs(size_t unit, const float* x, const int64_t* positions, int64_t t,
                                      const MappedWeights& weights) const {
  std::vector<Input> inputs{{x, activation_bytes(t), t}};
  if (bundle_.kind_of(unit).takes_positions) inputs.push_back({positions, position_bytes(t), t});
  push_unit(inputs, unit, weights);
  return inputs;
}

void Model::forward(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const int64_t step = std::min(t, kind.call_tokens(mlp_tokens_));
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    run(info.name, kind.name + "_forward", unit_inputs(unit, x + at, positions, n, weights),
        {{y + at, activation_bytes(n), n}});
  }
}

void Model::forward_save(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y, std::byte* saved) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const int64_t step = std::min(t, kind.call_tokens(mlp_tokens_));
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    std::vector<Output> outputs{{y + at, activation_bytes(n), n}};
    std::byte* staging = staging_;
    std::byte* store = saved;
    for (const SavedTensor& tensor : kind.saved) {
      const size_t room =
          tensor.converted() ? static_cast<size_t>(staging_ + staging_bytes_ - staging) : tensor.bytes(n);
      outputs.push_back({tensor.converted() ? staging : store, room, n, tensor.token_dim});
      if (tensor.converted()) staging += tensor.bytes(n);
      store += tensor.stored_bytes(n);
    }
    run(info.name, kind.name + "_forward_save", unit_inputs(unit, x + at, positions, n, weights), outputs);
    staging = staging_;
    for (const SavedTensor& tensor : kind.saved) {
      if (tensor.converted()) {
        shrink(tensor, reinterpret_cast<const float*>(staging), n, saved);
        staging += tensor.bytes(n);
      }
      saved += tensor.stored_bytes(n);
    }
  }
}

void Model::backward(size_t unit, const float* dy, const float* x, const int64_t* positions, int64_t t,
                     const std::byte* saved, float* dx, float* gradients, bool add, float* spare, size_t next) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  const MappedWeights& weights = weights_of(unit, next);
  const AdapterLayout::Range trained = layout_.trained(unit, lora_train_);
  const int64_t step = std::min(t, kind.call_tokens(mlp_tokens_));
  if (x == nullptr) x = dy;  // a method's input all the same, though it is not read
  if ((gradients == nullptr || add || step < t) && spare == nullptr) {
    fail("adding up gradients, or losing them, needs a spare buffer");
  }
  for (int64_t i = 0; i < t; i += step) {
    const int64_t n = std::min(step, t - i), at = i * bundle_.hidden_size;
    std::vector<Input> inputs = unit_inputs(unit, x + at, positions, n, weights);
    inputs.insert(inputs.begin(), {dy + at, activation_bytes(n), n});
    if (saved != nullptr) {
      std::byte* staging = staging_;
      for (const SavedTensor& tensor : kind.saved) {
        if (tensor.converted()) expand(tensor, saved, n, reinterpret_cast<float*>(staging));
        inputs.push_back({tensor.converted() ? staging : saved, tensor.bytes(n), n, tensor.token_dim});
        if (tensor.converted()) staging += tensor.bytes(n);
        saved += tensor.stored_bytes(n);
      }
    }
    std::vector<Output> outputs{{dx + at, activation_bytes(n), n}};
    float* target = gradients == nullptr || add || i > 0 ? spare : gradients;
    for (const AdapterTensor& tensor : layout_.units[unit]) {
      // Nothing is written where a tensor is not trained.
      float* values =
          tensor.offset < trained.begin ? parameters() + tensor.offset : target + tensor.offset - trained.begin;
      outputs.push_back({values, tensor.size() * sizeof(float)});
    }
    run(info.name, kind.name + (saved != nullptr ? "_backward" : "_backward_recompute"), inputs, outputs);
    if (gradients != nullptr && target == spare) {
      kernels().add(gradients, spare, static_cast<int64_t>(trained.size()), gradients);
    }
  }
}

void Model::decode(size_t unit, const float* x, const int64_t* positions, int64_t t, float* first, float* second,
                   float* y) {
  const UnitInfo& info = bundle_.units[unit];
  const UnitKind& kind = bundle_.kind_of(unit);
  if (!kind.decodes()) return forward(unit, x, positions, t, y);
  const MappedWeights& weights = weights_of(unit, unit + 1);
  const size_t held = static_cast<size_t>(kind.memory_size(bundle_.max_seq_len)) * sizeof(float);
  std::vector<Input> inputs{{x, activation_bytes(t), t}, {positions, position_bytes(t), t}, {first, held}};
  std::vector<Output> outputs{{y, activation_bytes(t), t}};
  if (kind.state_size > 0) {
    outputs.push_back({second, held});
  } else {
    inputs.push_back({second, held});
    // The new keys and values go straight behind the cached ones; the method only reads what lies before them.
    const int64_t past = positions[0] * kind.cache_width;
    const size_t added = static_cast<size_t>(t * kind.cache_width) * sizeof(float);
    outputs.push_back({first + past, added, t});
    outputs.push_back({second + past, added, t});
  }
  push_unit(inputs, unit, weights);
  run(info.name, kind.name + "_decode", inputs, outputs);
  std::copy(second, second + kind.state_size, first);
}

void Model::head_call(const char* method, const float* x, const int64_t* targets, int64_t t, float* losses, float* dx,
                      size_t next) {
  const size_t unit = bundle_.units.size();
  const MappedWeights& weights = weights_of(unit, next);
  std::optional<Sweep> sweep;
  if (unit >= resident_.size()) sweep.emplace(weights[1]);
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
  head_call("head", x, targets, t, losses, dx, next);
}

void Model::head_loss(const float* x, const int64_t* targets, int64_t t, float* losses) {
  head_call("head_loss", x, targets, t, losses, nullptr, 0);
}

void Model::logits(const float* x, int64_t t, float* out) {
  const size_t unit = bundle_.units.size();
  const MappedWeights& weights = weights_of(unit, 0);
  std::optional<Sweep> sweep;
  if (unit >= resident_.size()) sweep.emplace(weights[1]);
  for (int64_t i = 0; i < t; i += bundle_.head_tokens) {
    const int64_t n = std::min(bundle_.head_tokens, t - i);
    run("head", "logits",
        {{x + i * bundle_.hidden_size, activation_bytes(n), n},
         {weights[0].data, weights[0].bytes},
         {weights[1].data, weights[1].bytes}},
        {{out + i * bundle_.vocab_size, static_cast<size_t>(n * bundle_.vocab_size) * sizeof(float), n}});
  }
}

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
