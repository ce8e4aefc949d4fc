#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mft {

/// A tensor in the activation arena, at the most tokens that its method takes.
struct ArenaTensor {
  uint64_t offset;
  uint64_t bytes;
};

/// Holds a whole program.pte (ExecuTorch's schema/program.fbs) against the little that export writes of that format:
/// straight-line calls of this runtime's ops on tensors that lie in the arena, within its bounds, or are the method's
/// inputs and outputs. No delegates, jumps, constants or data of its own; ops write neither inputs nor what is not
/// theirs, and read nothing that no op wrote; indices of tokens come from the caller alone. Throws Error naming file
/// and method otherwise. Returns each method's tensors in the arena.
std::map<std::string, std::vector<ArenaTensor>> check_program(const std::byte* data, size_t size,
                                                              const std::string& path);

}  // namespace mft
