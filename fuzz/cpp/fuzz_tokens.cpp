/// A token file, trained on and evaluated.

#include "fuzz/cpp/fuzz.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/trainer.h"

std::vector<std::string> seeds() { return {mft_fuzz::read_file(mft_fuzz::tokens_path())}; }

void run(const std::string& data) {
  static const mft_fuzz::TestBundle bundle;
  static mft::Model model(bundle.folder());
  const std::string path = mft_fuzz::scratch_folder() + "/fuzzed.safetensors";
  mft_fuzz::write_file(path, data);
  const mft::TokenFile tokens(path, model.bundle().vocab_size);
  mft::TrainConfig config;
  config.seq_len = 12;
  config.threads = config.steps = 1;
  config.loss = tokens.pairs() ? mft::Loss::kDpo : mft::Loss::kSft;
  mft::Trainer(model, config, "", tokens.sequences()).step(tokens);
  mft::evaluate_file(model, "", path);
}
