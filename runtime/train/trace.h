#pragma once

#include <cstdio>
#include <string>

#include "runtime/train/trainer.h"

namespace mft {

/// Writes what a memory profiler needs beside what the kernel tells it, as JSON lines: first where each planned block
/// of memory lies ({"buffer", "address", "bytes"}), then every method call as it ends ({"unit", "method", "begin",
/// "end"}, seconds of the system's monotonic clock).
class Trace {
 public:
  /// Throws Error naming the file where it cannot be written.
  Trace(const std::string& path, const Trainer& trainer);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void method(const std::string& unit, const std::string& method, double begin, double end);

 private:
  std::FILE* file_;
};

}  // namespace mft
