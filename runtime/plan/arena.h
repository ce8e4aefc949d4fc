#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/bundle/program.h"

namespace mft {

/// Tokens of a method's calls.
struct CallTokens {
  int64_t used;
  int64_t most;  // that it can take
};

/// Bytes of the activation arena that these methods touch. A call touches the beginning of each of its tensors, in
/// proportion to the share of the method's most tokens that it uses.
uint64_t arena_bytes(const Program& program, const std::map<std::string, CallTokens>& methods);

}  // namespace mft
