/// A PEFT adapter to start from: adapter_config.json, a zero byte, adapter_model.safetensors.

#include <algorithm>
#include <filesystem>

#include "fuzz/cpp/fuzz.h"
#include "runtime/model/model.h"

static const mft_fuzz::TestBundle& bundle() {
  static const mft_fuzz::TestBundle copy;
  return copy;
}

std::vector<std::string> seeds() {
  return {bundle().original("adapter_config.json") + '\0' + bundle().original("adapter_model.safetensors")};
}

void run(const std::string& data) {
  static mft::Model model(bundle().folder());
  static const std::string folder = mft_fuzz::scratch_folder() + "/adapter";
  std::filesystem::create_directories(folder);
  const size_t end = std::min(data.find('\0'), data.size());
  mft_fuzz::write_file(folder + "/adapter_config.json", data.substr(0, end));
  mft_fuzz::write_file(folder + "/adapter_model.safetensors", data.substr(std::min(end + 1, data.size())));
  model.prepare(folder, 4);
}
