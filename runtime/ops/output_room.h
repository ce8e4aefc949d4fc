#pragma once

#include <cstddef>
#include <vector>

namespace mft {

/// A caller's buffer that a method writes an output to.
struct OutputRoom {
  const void* data;
  size_t bytes;
};

/// Those of the method that runs. ExecuTorch holds an output against the largest shape that the program gives it, not
/// against the buffer; ops hold it against these.
inline std::vector<OutputRoom> output_room;

}  // namespace mft
