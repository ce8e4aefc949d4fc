#include "runtime/platform/process_memory.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace mft {

ProcessMemory process_memory() {
  ProcessMemory result;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const auto value = [&line](const char* key) -> uint64_t {
      const size_t n = std::strlen(key);
      return line.compare(0, n, key) == 0 ? std::strtoull(line.c_str() + n, nullptr, 10) << 10 : 0;
    };
    if (const uint64_t v = value("VmRSS:")) result.rss = v;
    if (const uint64_t v = value("RssAnon:")) result.anon = v;
    if (const uint64_t v = value("VmHWM:")) result.peak_rss = v;
  }
  return result;
}

bool reset_peak_rss() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace mft
