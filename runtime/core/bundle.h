#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mft {

/// What a saved tensor is kept as between forward and backward.
enum class Stored { kAsIs, kHalf, kInt8Blocks };

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

/// A tensor in the activation arena, at the most tokens that its method takes.
struct ArenaTensor {
  uint64_t offset;
  uint64_t bytes;
};

/// One residual unit, as listed in bundle.json.
struct UnitInfo {
  std::string name;        // "layers.0.attn"
  std::string kind;        // prefix of its methods' names
  bool attention = false;  // else an MLP
  int64_t layer = 0;
  std::vector<std::string> weights;  // names in weights.ptd, in the order of the methods' inputs
  std::vector<std::string> lora;     // names in the adapter file, likewise
  std::vector<SavedTensor> saved;
  bool backward_reads_x = false;  // besides what is saved
};

/// A training bundle: bundle.json parsed, and every file's size and checksum verified (docs/bundle_format.md).
struct Bundle {
  /// Throws Error naming the file that is missing, truncated, edited or of another version.
  explicit Bundle(const std::string& folder);

  std::string file(const std::string& name) const { return folder + "/" + name; }

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
  int64_t mlp_tokens = 0;   // most that an MLP unit takes at once
  int64_t head_tokens = 0;  // most that the head takes at once
  int64_t lora_rank = 0;
  double lora_alpha = 0;
  std::vector<std::string> lora_targets;
  std::vector<UnitInfo> units;
  std::map<std::string, std::vector<ArenaTensor>> arena;  // by method
  std::vector<std::string> embed_weights;
  std::vector<std::string> head_weights;
  uint32_t weights_crc32 = 0;  // identifies the model in checkpoints
};

}  // namespace mft
