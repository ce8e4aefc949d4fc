/// Runs the seeds and the files of the folders given, once each, where there is no libFuzzer to mutate them.

#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "fuzz/cpp/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run_one(const std::string& name, const std::string& data) {
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

}  // namespace

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  for (const std::string& seed : seeds()) run_one("a seed", seed);
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) continue;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      run_one(entry.path(), mft_fuzz::read_file(entry.path()));
    }
  }
}
