#pragma once

#include <list>
#include <memory>
#include <string>

#include "runtime/base/buffer.h"
#include "runtime/base/file_stamp.h"
#include "runtime/model/half_adapter.h"
#include "runtime/model/model.h"

namespace mft {

/// An adapter in memory, as answers read it.
struct LoadedAdapter {
  std::string folder;
  FileStamp tensors, config;           // of the files in it, when they were read
  std::shared_ptr<Buffer> parameters;  // float32 [layout.size]
  HalfAdapter half;
};

/// The adapters that answers used last. They stay in memory, so that a change between them takes no time.
class Adapters {
 public:
  static constexpr size_t kMost = 4;

  /// The adapter in `folder` (empty: the bundle's own) as it is now: it is read again if its files have changed. Valid
  /// until the next call. Throws Error as load_adapter does.
  const LoadedAdapter& get(const Model& model, const std::string& folder);

 private:
  std::list<LoadedAdapter> loaded_;  // the one that was used last is the first
};

}  // namespace mft
