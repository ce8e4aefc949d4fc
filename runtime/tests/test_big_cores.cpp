// big_cores: which cores of a phone threads are for, out of what Linux says of them.

#include <filesystem>
#include <fstream>

#include "runtime/platform/cpu.h"
#include "runtime/platform/linux/core_speeds.h"
#include "runtime/platform/threads.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

std::string cores(const TempFolder& folder, const char* name, const char* file, const std::vector<int>& values) {
  const std::string root = folder / name;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::filesystem::path path = std::filesystem::path(root) / ("cpu" + std::to_string(i)) / file;
    std::filesystem::create_directories(path.parent_path());
    if (values[i] >= 0) std::ofstream(path) << values[i] << "\n";
  }
  return root;
}

}  // namespace

int main() {
  const TempFolder folder;
  // Four little ones, three big ones, a prime one; all alike; capacities are unknown, but speeds are not.
  CHECK(big_cores_in(cores(folder, "phone", "cpu_capacity", {236, 236, 236, 236, 859, 859, 859, 1024})) == 4);
  CHECK(big_cores_in(cores(folder, "desktop", "cpu_capacity", {1024, 1024})) == 2);
  CHECK(big_cores_in(cores(folder, "speeds", "cpufreq/cpuinfo_max_freq", {1200000, 3000000, 2000000})) == 2);
  CHECK(big_cores_in(cores(folder, "gap", "cpu_capacity", {500, -1, 1024})) == 0);
  CHECK(big_cores_in(folder / "missing") == 0);
  std::filesystem::create_directories(std::filesystem::path(folder / "phone") / "cpufreq");  // no core
  CHECK(big_cores_in(folder / "phone") == 4);
  CHECK(thread_count() >= 1 && (big_cores() == 0 || thread_count() <= big_cores()));
  const ThreadParts parts(3);
  CHECK(thread_count() == 3);
  return finish();
}
