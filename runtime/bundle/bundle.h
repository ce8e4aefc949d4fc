#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mft {

/// What a saved tensor is kept as between forward and backward.
enum class Stored { kAsIs, kHalf, kInt8Blocks, kInt4Blocks };

constexpr int64_t kMostTokens = 1 << 20;

/// A tensor that `<kind>_forward_save` hands to `<kind>_backward`: `values` numbers a token, the tokens in dimension
/// `token_dim`.
struct SavedTensor {
  int64_t values = 1;
  size_t token_dim = 0;
  size_t item_bytes = sizeof(float);  // as the methods take it
  Stored stored = Stored::kAsIs;
  bool converted() const { return stored != Stored::kAsIs; }
  size_t bytes(int64_t tokens) const { return static_cast<size_t>(values * tokens) * item_bytes; }
  /// What it takes in store; rounded up, so that the next tensor is aligned.
  size_t stored_bytes(int64_t tokens) const;
};

/// Operations of a call with t tokens: linear x t + quadratic x t^2, two a multiply-add.
struct Flops {
  double linear = 0;
  double quadratic = 0;
  double at(int64_t tokens) const {
    const double t = static_cast<double>(tokens);
    return linear * t + quadratic * t * t;
  }
};

/// What units that run the same methods, `<name>_forward` and so on, have in common.
struct UnitKind {
  std::string name;
  int64_t tokens = 0;            // the most a call can take
  bool takes_positions = false;  // as the methods' second input
  int64_t cache_width = 0;       // numbers a token in each of the two caches of `<name>_decode`
  int64_t state_size = 0;        // numbers of the state that `<name>_decode` takes and gives
  Flops flops;                   // of the forward
  Flops recompute_flops;         // of the forward without what only its output needs
  std::vector<SavedTensor> saved;
  bool backward_reads_x = false;  // besides what is saved
  /// Whether there is a `<name>_decode`.
  bool decodes() const { return cache_width > 0 || state_size > 0; }
  /// The most tokens of a call where MLPs are to take `mlp_tokens`, 0: all they can.
  int64_t call_tokens(int64_t mlp_tokens) const {
    return takes_positions || mlp_tokens == 0 ? tokens : std::min(tokens, mlp_tokens);
  }
  /// Numbers in either of the two parts of what generation remembers, for so many tokens.
  int64_t memory_size(int64_t tokens) const { return tokens * cache_width + state_size; }
};

/// One residual unit, x + branch(x), as listed in bundle.json.
struct UnitInfo {
  std::string name;  // "layers.0.attn", for people
  size_t kind = 0;   // in Bundle::kinds
  int64_t layer = 0;
  std::vector<std::string> weights;  // names in weights.ptd, in the order of the methods' inputs
  std::vector<std::string> lora;     // names in the adapter file, likewise
};

struct FileChecksum {
  uint64_t size = 0;
  std::string sha256;
};

/// What weights.ptd must be like: its length, its index, and each tensor.
struct WeightChecksums {
  uint64_t size = 0;
  FileChecksum index;                         // the bytes before the first tensor
  std::map<std::string, std::string> sha256;  // by tensor
};

/// A training bundle: bundle.json parsed and checked, and the sizes of all files held against it. What is in them is
/// verified when it is first used (docs/reference/bundle_format.md).
struct Bundle {
  /// Throws Error naming the file that is missing, truncated, of another version, or not signed by who is trusted
  /// (bundle/signature.h).
  explicit Bundle(const std::string& folder);

  std::string file(const std::string& name) const { return folder + "/" + name; }
  /// The path of one of the bundle's own files. Throws Error where its content is not what was exported.
  std::string verified(const std::string& name) const;

  const UnitKind& kind_of(size_t unit) const { return kinds[units[unit].kind]; }
  /// Whether units round what they store, so that the gradient depends on which of them store.
  bool rounds_what_it_stores() const;

  std::string folder;
  std::string model_name;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;
  int64_t head_tokens = 0;  // most that the head takes at once
  double head_flops = 0;    // of the head's loss and gradient, a token
  int64_t lora_rank = 0;
  double lora_alpha = 0;
  bool lora_rslora = false;
  std::vector<std::string> lora_targets;
  std::vector<UnitKind> kinds;
  std::vector<UnitInfo> units;
  std::vector<std::string> embed_weights;
  std::vector<std::string> head_weights;
  std::map<std::string, FileChecksum> files;  // all but bundle.json and weights.ptd
  WeightChecksums weights;
  std::string weights_id;  // SHA-256 over all of `weights`: identifies the model in checkpoints
};

}  // namespace mft
