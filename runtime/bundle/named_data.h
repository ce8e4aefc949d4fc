#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/file.h"

namespace mft {

/// The location of a tensor in weights.ptd.
struct FilePlace {
  uint64_t offset;
  uint64_t bytes;
};

/// Reads the index of an ExecuTorch FlatTensor file (extension/flat_tensor/serialize/flat_tensor.fbs). `index` is the
/// beginning of the file. Returns the location of each tensor, which is aligned to 64 bytes, after the index and within
/// the file.
/// Throws Error, with the file and the tensor, otherwise.
std::map<std::string, FilePlace> read_named_data(const OpenFile& file, std::string_view index);

}  // namespace mft
