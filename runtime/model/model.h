#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/base/exclusive.h"
#include "runtime/bundle/adapter.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/program.h"
#include "runtime/bundle/weight_store.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/model/side_tensors.h"

namespace mft {

/// Called after every method call with the unit ("layers.3.mlp", "embed" or "head"), the method, and the times of its
/// beginning and end (seconds of the steady clock).
using Observer = std::function<void(const std::string& unit, const std::string& method, double begin, double end)>;

/// What Model::backward reads and writes for one unit. Activations are float32 [tokens, hidden_size].
struct UnitBackward {
  int64_t tokens = 0;
  const float* dy = nullptr;           // gradient of the unit's output
  const float* x = nullptr;            // the unit's input; null if the unit's backward does not read it
  const int64_t* positions = nullptr;  // [tokens]
  const std::byte* saved = nullptr;    // activations of forward_save; null: the forward is computed again from x
  float* dx = nullptr;                 // receives the gradient of the unit's input
  float* gradients = nullptr;          // receive those of the trained LoRA parameters, in the layout's order; or null
  bool add = false;                    // add to `gradients` instead of overwriting them
  float* spare = nullptr;              // as large as `gradients`; for `add`, no `gradients`, and more than one call
};

/// What a unit keeps of the tokens so far while the model answers: for attention, rows of max_seq_len tokens' keys in
/// `first` and values in `second` (KvCache). Behind them, for units with a state, `first` holds the state, and `second`
/// has room for the next one.
struct DecodeMemory {
  uint8_t* first;
  uint8_t* second;
  float* fresh;  // room for the keys and values [2, t, cache_width] of the new tokens; they may be computed in place

  /// Bytes of the rows in each of the two.
  static size_t cache_bytes(const UnitKind& kind, KvFormat format, int64_t max_seq_len);
  /// Bytes of each of the two.
  static size_t bytes(const UnitKind& kind, KvFormat format, int64_t max_seq_len) {
    return cache_bytes(kind, format, max_seq_len) + static_cast<size_t>(kind.state_size) * sizeof(float);
  }
};

/// A bundle ready to run, unit by unit. Activations are float32 [tokens, hidden_size] and belong to the caller. One
/// unit's weights are mapped at a time, while the next one's are read ahead from disk. Units that work token by token
/// run in several calls if there are more tokens than a call takes.
class Model {
 public:
  /// Verifies the program. Weights are verified when they are first mapped.
  explicit Model(const std::string& bundle_folder);

  /// Loads LoRA parameters (`adapter_folder` empty: the bundle's initial ones) and makes room for calls of up to
  /// `tokens` tokens. From now on work is split into `threads` parts (0: one for each big core), linear layers compute
  /// with `compute`, and an MLP takes `mlp_tokens` per call (0: as many as it can). There is room for int8 in any case.
  /// Throws Error while a trainer uses the model.
  void prepare(const std::string& adapter_folder, int64_t tokens, int64_t threads = 0,
               Compute compute = Compute::kFloat32, int64_t mlp_tokens = 0);
  /// Off: the model computes without its adapter, as it was exported. On after `prepare`.
  void use_adapter(bool on) { adapter_on_ = on; }
  /// float32 at any time; int8 and int15 only if `prepare` made room for int8.
  void use_compute(Compute compute) { program_.op_context().compute = compute; }
  Compute compute() const { return program_.op_context().compute; }
  /// The most tokens of a call that `prepare` made room for.
  int64_t tokens() const { return tokens_; }
  /// Whether `prepare` made room for it.
  bool has_room_for(Compute compute) const { return compute == Compute::kFloat32 || room_ == Compute::kInt8; }
  /// Reads the adapter from a copy in float16 from now on, where it computes few rows in int8. Empty: from none.
  void use_half_lora(const HalfLora& lora) { program_.op_context().half_lora = lora; }
  bool adapter_is_on() const { return adapter_on_; }
  /// Reads an adapter (`folder` empty: the bundle's initial one) into `parameters` [layout().size].
  void load_adapter_into(const std::string& folder, float* parameters) const;
  /// Computes with these LoRA parameters [layout().size] from now on, until the next `prepare`.
  void use_parameters(std::shared_ptr<Buffer> parameters) { parameters_ = std::move(parameters); }
  /// The LoRA matrices for which `backward` computes gradients. Both after `prepare`.
  void train_lora(LoraTrain train);

  /// Embeddings, and the side tensors that only depend on the tokens. The following calls are for these tokens.
  void embed(const int64_t* tokens, int64_t t, float* x);
  void forward(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y);
  /// Like `forward`, and stores in `saved` [saved_bytes(unit, t)] the activations that `backward` needs, besides x if
  /// the unit's backward reads x.
  void forward_save(size_t unit, const float* x, const int64_t* positions, int64_t t, float* y, std::byte* saved);
  /// The backward of a unit. The weights of unit `next`, which runs next, are read ahead from disk; SIZE_MAX: none.
  void backward(size_t unit, const UnitBackward& call, size_t next);
  /// Multiplies the output of x + branch(x), or its gradient before the unit's `backward`, by the unit's factor.
  /// `forward` does it itself.
  void scale(size_t unit, int64_t t, float* values) const;
  /// The side tensors, whose gradients `head` sets to zero and each `backward` adds to.
  const SideTensors& side_tensors() const { return side_; }
  /// Generation: like `forward` after positions[0] tokens, which `memory` holds and to which the new ones are added. If
  /// the unit takes an earlier unit's keys and values, it is that unit's memory, which has run before.
  void decode(size_t unit, const float* x, const int64_t* positions, int64_t t, const DecodeMemory& memory, float* y);
  /// How `decode` keeps keys and values.
  void use_kv_format(KvFormat format) { program_.op_context().kv_format = format; }
  /// The loss of each token [t], 0 without a target, and the gradient of the sum of losses with respect to x. `next` as
  /// for `backward`.
  void head(const float* x, const int64_t* targets, int64_t t, float* losses, float* dx, size_t next);
  void head_loss(const float* x, const int64_t* targets, int64_t t, float* losses);
  /// Logits [t, vocab_size].
  void logits(const float* x, int64_t t, float* out);

  const Bundle& bundle() const { return bundle_; }
  const AdapterLayout& layout() const { return layout_; }
  const Program& program() const { return program_; }
  float* parameters() const { return parameters_->floats(); }
  const Buffer& parameter_buffer() const { return *parameters_; }
  const Buffer& no_adapter_buffer() const { return no_adapter_; }
  void observe(Observer observer) { observer_ = std::move(observer); }
  /// Keeps the weights of the first `units` units mapped from now on, those of the head too where there is one more.
  void keep_resident(size_t units);
  /// One call from outside, such as a step of training or an answer. Throws Busy if another thread's call, or one that
  /// encloses this, is in progress on this model. The other methods leave this check to their callers.
  Exclusive::Call begin_call() const {
    return {exclusive_, "busy: another call is computing on this model; wait for its end, or open the bundle again"};
  }

  /// While it lives, the model is one trainer's alone. Throws Error where another trainer works on it.
  class Claim {
   public:
    explicit Claim(Model& model);
    ~Claim() { model_.claimed_ = false; }
    /// `Model::prepare`, which is the trainer's alone meanwhile.
    void prepare(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                 int64_t mlp_tokens) {
      model_.make_ready(adapter_folder, tokens, threads, compute, mlp_tokens);
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    Model& model_;
  };

  bool claimed() const { return claimed_; }
  /// Into how many parts threads split work.
  int64_t threads() const { return threads_; }

  /// Bytes of x.
  size_t activation_bytes(int64_t t) const { return static_cast<size_t>(t * bundle_.hidden_size) * sizeof(float); }
  /// Bytes of what `forward_save` leaves where an MLP takes `mlp_tokens` at once.
  size_t saved_bytes(const UnitKind& kind, int64_t tokens, int64_t mlp_tokens) const;
  /// Bytes of kernel scratch that calls of up to `tokens` tokens need, `staging` bytes at its end included: kernels of
  /// units leave them alone, the head's, which run when nothing is staged, do not.
  size_t scratch_bytes(int64_t tokens, Compute compute, size_t staging) const;
  /// Bytes in which `forward_save` and `backward` convert between float32 and what is kept.
  size_t staging_bytes(int64_t tokens, int64_t mlp_tokens) const;
  size_t side_tensor_bytes(int64_t tokens) const { return SideTensors::bytes(bundle_, tokens); }
  /// Bytes of what stands in for the adapter while it is off.
  size_t no_adapter_bytes() const;
  /// Bytes that a unit's weights make resident, and the head's for the unit after the last.
  size_t weight_bytes(size_t unit) const;
  /// Bytes that the linear layer of per-layer embeddings makes resident.
  size_t per_layer_weight_bytes() const;

 private:
  void make_ready(const std::string& adapter_folder, int64_t tokens, int64_t threads, Compute compute,
                  int64_t mlp_tokens);
  MappedWeights map_unit(size_t unit);
  const MappedWeights& weights_of(size_t unit, size_t next);
  void run(const std::string& unit, const std::string& method, const std::vector<Input>& inputs,
           const std::vector<Output>& outputs);
  void head_call(const char* method, const float* x, const int64_t* targets, int64_t t, float* losses, float* dx,
                 size_t next);
  void read_scales();
  void embed_per_layer(const int64_t* tokens, int64_t t, const float* x);
  std::vector<Input> unit_inputs(size_t unit, const float* x, const int64_t* positions, int64_t first, int64_t t,
                                 const MappedWeights& weights) const;
  void push_given(size_t unit, int64_t t, std::vector<Output>& outputs) const;
  void push_saved_outputs(const UnitKind& kind, int64_t n, std::byte* saved, std::vector<Output>& outputs) const;
  std::byte* store_staged(const UnitKind& kind, int64_t n, std::byte* saved) const;
  const std::byte* push_saved_inputs(const UnitKind& kind, int64_t n, const std::byte* saved,
                                     std::vector<Input>& inputs) const;
  void insert_given(size_t unit, int64_t t, std::vector<Input>& inputs) const;
  void push_taken_gradients(const UnitKind& kind, int64_t t, std::vector<Output>& outputs) const;
  void push_gradients(size_t unit, float* gradients, std::vector<Output>& outputs) const;
  size_t unit_scratch_bytes(int64_t tokens, Compute compute) const;
  size_t head_scratch_bytes(int64_t tokens, Compute compute) const;
  void push_unit(std::vector<Input>& inputs, size_t unit, const MappedWeights& weights) const;

  Bundle bundle_;
  Program program_;
  WeightStore weights_;
  AdapterLayout layout_;
  std::vector<MappedWeights> resident_;
  MappedWeights current_;
  MappedWeights next_;
  size_t next_unit_ = SIZE_MAX;
  std::shared_ptr<Buffer> parameters_ = std::make_shared<Buffer>();
  Buffer no_adapter_;  // zeros
  SideTensors side_;
  std::byte* staging_ = nullptr;  // the end of the kernel scratch
  size_t staging_bytes_ = 0;
  std::vector<float> scales_;                 // factor of each unit's output
  mutable std::vector<size_t> weight_bytes_;  // of each unit and the head, once asked for
  int64_t tokens_ = 0;
  int64_t threads_ = 0;
  int64_t mlp_tokens_ = 0;
  LoraTrain lora_train_ = LoraTrain::kBoth;
  bool adapter_on_ = true;
  Compute room_ = Compute::kFloat32;
  std::atomic<bool> claimed_{false};  // a trainer may be destroyed while another thread calls
  mutable Exclusive exclusive_;
  Observer observer_;
};

}  // namespace mft
