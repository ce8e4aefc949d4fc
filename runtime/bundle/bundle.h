#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/kernels/linear/experts.h"
#include "runtime/kernels/recurrent/delta_net.h"
#include "runtime/kernels/recurrent/mamba2.h"

namespace mft {

/// The storage format of a saved tensor between forward and backward.
enum class Stored { kAsIs, kHalf, kInt8Blocks, kInt4Blocks };

constexpr int64_t kMostTokens = 1 << 20;

/// A tensor that `<kind>_forward_save` saves for `<kind>_backward`: `values` values per token, with the tokens in
/// dimension `token_dim`.
struct SavedTensor {
  int64_t values = 1;
  size_t token_dim = 0;
  size_t item_bytes = sizeof(float);  // size in the methods
  Stored stored = Stored::kAsIs;
  bool converted() const { return stored != Stored::kAsIs; }
  size_t bytes(int64_t tokens) const { return static_cast<size_t>(values * tokens) * item_bytes; }
  /// Size in storage, rounded up so that the next tensor is aligned.
  size_t stored_bytes(int64_t tokens) const;
};

/// Operations of a call with t tokens: linear x t + quadratic x t^2, counting two per multiply-add.
struct Flops {
  double linear = 0;
  double quadratic = 0;
  double at(int64_t tokens) const {
    const double t = static_cast<double>(tokens);
    return linear * t + quadratic * t * t;
  }
};

/// A linear layer's size.
struct LinearShape {
  int64_t in_features;
  int64_t out_features;
};

/// What a kind of units has besides the residual stream.
enum class Side {
  kNone,
  kGives,     // keys and values, to later units
  kTakes,     // keys and values of an earlier unit
  kPerLayer,  // a per-layer embedding
};

/// A kind of units: units that share the methods `<name>_forward` and so on.
struct UnitKind {
  std::string name;
  int64_t tokens = 0;            // maximum tokens per call
  bool takes_positions = false;  // whether the methods' second input is positions
  int64_t cache_width = 0;       // values per token in each of the two caches of `<name>_decode`
  int64_t state_size = 0;        // size of the state that `<name>_decode` reads and returns
  Flops flops;                   // operations of the forward
  Flops recompute_flops;         // the forward without the parts that only its output needs
  std::vector<SavedTensor> saved;
  bool backward_reads_x = false;  // in addition to saved tensors
  std::vector<LinearShape> linears;
  int64_t heads = 0;  // of attention; 0: the unit has none
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  DeltaNetShape delta_net{};  // without a token count; 0 heads: the unit has none
  Mamba2Shape mamba2{};       // likewise
  ExpertsShape experts{};     // likewise, with the sizes alone; 0 experts: the unit has none
  Side side = Side::kNone;
  int64_t side_width = 0;  // values per token of the per-layer embedding, or of the keys and of the values
  /// Number of tensors that the methods take from elsewhere.
  size_t side_inputs() const { return side == Side::kTakes ? 2 : side == Side::kPerLayer ? 1 : 0; }
  /// Whether the kind has a method `<name>_decode`.
  bool decodes() const { return cache_width > 0 || state_size > 0 || side == Side::kTakes; }
  /// Maximum tokens per call if MLPs take at most `mlp_tokens` (0: their maximum).
  int64_t call_tokens(int64_t mlp_tokens) const {
    return takes_positions || mlp_tokens == 0 ? tokens : std::min(tokens, mlp_tokens);
  }
  /// Size of each of the two parts of the generation state, for this number of tokens.
  int64_t memory_size(int64_t tokens) const { return tokens * cache_width + state_size; }
};

/// A residual unit, x + branch(x), as listed in bundle.json.
struct UnitInfo {
  std::string name;  // such as "layers.0.attn", for messages
  size_t kind = 0;   // index in Bundle::kinds
  int64_t layer = 0;
  std::string scale;                 // name in weights.ptd of the factor of x + branch(x); empty: 1
  size_t giver = 0;                  // the unit whose keys and values it takes
  std::vector<std::string> weights;  // names in weights.ptd, in the order of the methods' inputs
  std::vector<std::string> lora;     // names in the adapter file, in the same order
};

/// Per-layer embeddings: each layer has one row for each token.
struct PerLayer {
  int64_t width = 0;                 // values of a row; 0: the model has none
  int64_t tokens = 0;                // maximum tokens per call of `per_layer_inputs`
  std::vector<std::string> weights;  // norm, linear layer of all layers, table
};

struct FileChecksum {
  uint64_t size = 0;
  std::string sha256;
};

/// Checksums of weights.ptd: its size, its index, and each tensor.
struct WeightChecksums {
  uint64_t size = 0;
  FileChecksum index;                         // the bytes before the first tensor
  std::map<std::string, std::string> sha256;  // key: tensor
};

/// A training bundle. bundle.json is parsed and checked, and the sizes of all files are compared with it. The contents
/// of files are verified when they are first used (docs/reference/bundle_format.md).
struct Bundle {
  /// Throws Error, with the file's name, if a file is missing, truncated, of another version, or not signed with the
  /// trusted key (bundle/signature.h).
  explicit Bundle(const std::string& folder);

  std::string file(const std::string& name) const { return folder + "/" + name; }
  /// Returns the path of one of the bundle's files. Throws Error if its checksum does not match.
  std::string verified(const std::string& name) const;

  const UnitKind& kind_of(size_t unit) const { return kinds[units[unit].kind]; }
  /// Whether units have anything besides the residual stream.
  bool has_side_tensors() const;
  bool has_experts() const;
  /// Whether units round stored activations, so that the gradient depends on which units store them.
  bool rounds_what_it_stores() const;

  std::string folder;
  std::string model_name;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;
  int64_t head_tokens = 0;  // maximum tokens per call of the head
  double head_flops = 0;    // of the head's loss and gradient, per token
  int64_t lora_rank = 0;
  double lora_alpha = 0;
  bool lora_rslora = false;
  double lr_factor = 1;  // the model family's factor of the learning rate of --lr auto
  std::vector<std::string> lora_targets;
  std::vector<UnitKind> kinds;
  std::vector<UnitInfo> units;
  PerLayer per_layer;
  std::vector<std::string> embed_weights;
  std::vector<std::string> head_weights;
  std::map<std::string, FileChecksum> files;  // all files except bundle.json and weights.ptd
  WeightChecksums weights;
  std::string weights_id;  // SHA-256 over all of `weights`: identifies the model in checkpoints
};

}  // namespace mft
