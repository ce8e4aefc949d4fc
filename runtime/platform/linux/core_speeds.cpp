#include "runtime/platform/linux/core_speeds.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

namespace mft {
namespace {

/// Whether it is "cpu" and a number.
bool names_core(const std::string& name) {
  return name.size() > 3 && name.compare(0, 3, "cpu") == 0 &&
         std::all_of(name.begin() + 3, name.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
}

/// What the file `what` of each core says; nothing where one lacks it.
std::vector<int64_t> of_cores(const std::string& folder, const char* what) {
  std::vector<int64_t> values;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!names_core(entry.path().filename().string())) continue;
    int64_t value = 0;
    if (!(std::ifstream(entry.path() / what) >> value) || value <= 0) return {};
    values.push_back(value);
  }
  return values;
}

}  // namespace

int64_t big_cores_in(const std::string& folder) {
  for (const char* what : {"cpu_capacity", "cpufreq/cpuinfo_max_freq"}) {
    const std::vector<int64_t> speeds = of_cores(folder, what);
    if (speeds.empty()) continue;
    const int64_t fastest = *std::max_element(speeds.begin(), speeds.end());
    return std::count_if(speeds.begin(), speeds.end(), [&](int64_t speed) { return speed >= fastest - speed; });
  }
  return 0;
}

}  // namespace mft
