#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/file.h"

namespace mft {

/// Where a tensor lies in weights.ptd.
struct FilePlace {
  uint64_t offset;
  uint64_t bytes;
};

/// The index of an ExecuTorch FlatTensor file (extension/flat_tensor/serialize/flat_tensor.fbs), which fills the file's
/// first bytes, `index`: where each tensor lies, aligned to 64 bytes, within the file and behind the index.
/// Throws Error naming the file, and the tensor that lies elsewhere.
std::map<std::string, FilePlace> read_named_data(const OpenFile& file, std::string_view index);

}  // namespace mft
