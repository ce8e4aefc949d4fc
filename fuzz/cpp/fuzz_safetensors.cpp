/// Any safetensors file: every tensor that it names lies within it.

#include "fuzz/cpp/fuzz.h"
#include "runtime/base/safetensors.h"
#include "runtime/bundle/adapter.h"

std::vector<std::string> seeds() { return {mft_fuzz::read_file(mft_fuzz::tokens_path())}; }

void run(const std::string& data) {
  const std::string path = mft_fuzz::scratch_folder() + "/fuzzed.safetensors";
  mft_fuzz::write_file(path, data);
  const mft::SafeTensors file(path);
  for (const auto& [name, view] : file.tensors()) mft::all_finite(view.data, view.bytes / sizeof(float));
}
