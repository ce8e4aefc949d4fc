#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mft {

/// A tensor in the activation arena, with its size at the maximum number of tokens.
struct ArenaTensor {
  uint64_t offset;
  uint64_t bytes;
};

/// Checks that a program.pte (ExecuTorch's schema/program.fbs) uses only the part of the format that export writes:
/// straight-line calls of this runtime's ops on tensors within the arena, or on the method's inputs and outputs. It may
/// not have delegates, jumps or constant data. Ops may not write inputs or foreign tensors, or read tensors that no op
/// wrote. Token indices come only from the caller. Throws Error, with the file and the method, otherwise. Returns each
/// method's tensors in the arena.
std::map<std::string, std::vector<ArenaTensor>> check_program(const std::byte* data, size_t size,
                                                              const std::string& path);

}  // namespace mft
