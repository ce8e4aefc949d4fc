/// A token file, trained on and evaluated.

#include "fuzz/cpp/fuzz.h"
#include "runtime/base/safetensors.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/trainer.h"

namespace {

/// Four answers with labels in two sequences.
std::string labelled() {
  const std::string path = mft_fuzz::scratch_folder() + "/labels.safetensors";
  const std::vector<int64_t> offsets = {0, 6, 12};
  const std::vector<int32_t> tokens = {1, 2, 3, 1, 2, 3, 3, 2, 1, 3, 2, 1};
  const std::vector<int32_t> targets = {-100, 3, 1, -100, 3, 1, -100, 1, 2, -100, 1, 2};
  const std::vector<int32_t> positions = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  const std::vector<uint8_t> labels = {1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1};
  mft::write_safetensors(path,
                         {{"offsets", "I64", {3}, offsets.data()},
                          {"tokens", "I32", {12}, tokens.data()},
                          {"targets", "I32", {12}, targets.data()},
                          {"positions", "I32", {12}, positions.data()},
                          {"labels", "U8", {12}, labels.data()}},
                         {{"rows", "labels"}});
  return mft_fuzz::read_file(path);
}

}  // namespace

std::vector<std::string> seeds() { return {mft_fuzz::read_file(mft_fuzz::tokens_path()), labelled()}; }

void run(const std::string& data) {
  static const mft_fuzz::TestBundle bundle;
  static mft::Model model(bundle.folder());
  const std::string path = mft_fuzz::scratch_folder() + "/fuzzed.safetensors";
  mft_fuzz::write_file(path, data);
  const mft::TokenFile tokens(path, model.bundle().vocab_size);
  mft::TrainConfig config;
  config.seq_len = 12;
  config.threads = config.steps = 1;
  config.loss = tokens.rows() == mft::RowKind::kPairs    ? mft::Loss::kDpo
                : tokens.rows() == mft::RowKind::kLabels ? mft::Loss::kKto
                                                         : mft::Loss::kSft;
  mft::Trainer(model, config, "", tokens.sequences()).step(tokens);
  mft::evaluate_file(model, "", path);
}
