/// The checkpoint of a run that is resumed.

#include <filesystem>

#include "fuzz/cpp/fuzz.h"
#include "runtime/train/run.h"

static std::string out() { return mft_fuzz::scratch_folder() + "/out"; }

/// Two steps and a validation, or the third one after them.
static void train(bool resume) {
  static const mft_fuzz::TestBundle bundle;
  static mft::Model model(bundle.folder());
  // What makes a run long is given; all else that decides the result comes from the checkpoint.
  const std::map<std::string, std::string> given = {{"seq_len", "8"},    {"grad_accum", "1"}, {"steps", "3"},
                                                    {"eval_every", "2"}, {"save_every", "2"}, {"threads", "1"}};
  const mft::TrainConfig config = mft::make_train_config(resume ? mft::resumed_options(out(), given) : given);
  mft::StopRequest stop;
  mft::RunPaths paths;
  paths.data = paths.valid = mft_fuzz::tokens_path();
  paths.out = out();
  paths.resume = resume;
  mft::Run run(model, config, paths, [&](const mft::Event& event) {
    if (event.at("event") == "saved" && !resume) stop.cancel();
  });
  while (run.step(stop)) {
  }
}

std::vector<std::string> seeds() {
  std::filesystem::remove_all(out());
  try {
    train(false);
  } catch (const mft::Stopped&) {  // after the second step, saved
  }
  return {mft_fuzz::read_file(out() + "/checkpoint.safetensors")};
}

void run(const std::string& data) {
  std::filesystem::create_directories(out());
  mft_fuzz::write_file(out() + "/checkpoint.safetensors", data);
  train(true);
}
