#include "runtime/train/trace.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "runtime/base/error.h"

namespace mft {

Trace::Trace(const std::string& path, const Trainer& trainer) : file_(std::fopen(path.c_str(), "we")) {
  if (file_ == nullptr) fail(path, ": ", std::strerror(errno));
  std::setvbuf(file_, nullptr, _IOLBF, 4096);  // a line is complete when its method has ended
  for (const auto& [name, buffer] : trainer.buffers()) {
    if (buffer->size() == 0) continue;
    std::fprintf(file_, "{\"buffer\": \"%s\", \"address\": %" PRIuPTR ", \"bytes\": %zu}\n", name.c_str(),
                 reinterpret_cast<uintptr_t>(buffer->bytes()), buffer->size());
  }
}

Trace::~Trace() { std::fclose(file_); }

void Trace::method(const std::string& unit, const std::string& method, double begin, double end) {
  std::fprintf(file_, "{\"unit\": \"%s\", \"method\": \"%s\", \"begin\": %.6f, \"end\": %.6f}\n", unit.c_str(),
               method.c_str(), begin, end);
}

}  // namespace mft
