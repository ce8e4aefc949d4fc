#include "fuzz/cpp/fuzz.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/bundle/named_data.h"
#include "runtime/generate/generator.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/trainer.h"

using namespace mft;

namespace mft_fuzz {
namespace {

std::string sha256_of(const std::string& bytes) {
  Sha256 sha;
  sha.update(bytes.data(), bytes.size());
  return sha.hex();
}

/// `-seeds=FOLDER`: writes the seeds there, which is all of it.
void write_seeds(const char* folder) {
  int i = 0;
  for (const std::string& seed : seeds()) write_file(folder + ("/seed" + std::to_string(i++)), seed);
  std::exit(0);
}

}  // namespace

const std::string& scratch_folder() {
  static const mft_test::TempFolder folder;
  static const std::string path = folder.path();
  return path;
}

TestBundle::TestBundle() : folder_(scratch_folder() + "/bundle") {
  const char* source = std::getenv("MFT_TEST_BUNDLE");
  if (source == nullptr) fail("MFT_TEST_BUNDLE must name a bundle, of tests/small_bundle.py");
  std::filesystem::copy(source, folder_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    originals_[entry.path().filename()] = read_file(entry.path());
  }
}

void TestBundle::replace(const std::string& name, const std::string& content) const {
  nlohmann::ordered_json index = nlohmann::ordered_json::parse(original("bundle.json"));
  index["checksums"][name] = {{"size", content.size()}, {"sha256", sha256_of(content)}};
  write_file(file(name), content);
  write_file(file("bundle.json"), index.dump());
}

void TestBundle::replace_weights(const std::string& content, size_t index_size) const {
  nlohmann::ordered_json index = nlohmann::ordered_json::parse(original("bundle.json"));
  nlohmann::ordered_json& weights = index["weights"];
  weights["size"] = content.size();
  weights["index_size"] = index_size;
  weights["index_sha256"] = sha256_of(content.substr(0, index_size));
  write_file(file("weights.ptd"), content);
  try {
    const OpenFile opened(file("weights.ptd"));
    for (const auto& [name, place] : read_named_data(opened, content.substr(0, index_size))) {
      const bool known = weights["sha256"].contains(name) && place.bytes < content.size();
      if (known) weights["sha256"][name] = sha256_of(content.substr(place.offset, place.bytes));
    }
  } catch (const Error&) {  // what reads it will say so
  }
  write_file(file("bundle.json"), index.dump());
}

const std::string& tokens_path() {
  static const std::string path = [] {
    mft_test::TokenTensors tokens;
    tokens.add({5, 6, 7, 8, 9, 1}, 2);
    tokens.add({2, 3, 11, 12, 13, 14}, 5);
    tokens.positions[4] = tokens.positions[10] = 0;  // two rows a sequence
    tokens.positions[5] = tokens.positions[11] = 1;
    const std::string file = scratch_folder() + "/tokens.safetensors";
    tokens.write(file);
    return file;
  }();
  return path;
}

void use_bundle(const std::string& folder, const std::string& adapter) {
  Model model(folder);
  const TokenFile data(tokens_path(), model.bundle().vocab_size);
  for (const Backward backward : {Backward::kRecompute, Backward::kStore}) {
    TrainConfig config;
    config.seq_len = 8;
    config.steps = 1;
    config.threads = 1;
    config.backward = backward;
    Trainer trainer(model, config, adapter, data.sequences());
    trainer.step(data);
  }
  evaluate_file(model, adapter, tokens_path());
  model.prepare(adapter, Generator::prepared_tokens(model.bundle()));
  GenerateConfig config;
  config.max_tokens = 2;
  Generator(model).generate({1, 2, 3}, config, [](int64_t) { return true; });
}

}  // namespace mft_fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const char* option = "-seeds=";
  for (int i = 1; i < *argc; ++i) {
    if (std::strncmp((*argv)[i], option, std::strlen(option)) == 0) {
      mft_fuzz::write_seeds((*argv)[i] + std::strlen(option));
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    run(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const mft::Error& error) {
    if (mft::one_line(error.what()) != error.what()) std::abort();
  }
  return 0;
}
