#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/file.h"

namespace mft {

/// A safetensors file, mapped read-only. The constructor checks every length and offset in its header.
class SafeTensors {
 public:
  struct View {
    std::string dtype;  // "F32", "I32", "I64", ...
    std::vector<int64_t> shape;
    const std::byte* data;
    size_t bytes;
  };

  explicit SafeTensors(const std::string& path);

  /// Returns the tensor `name`. Throws Error, with the file and the tensor, if it is missing or has another dtype.
  const View& get(const std::string& name, const std::string& dtype) const;
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  const std::map<std::string, View>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }
  /// Drops the file's pages from the process until they are read again.
  void drop() const { file_.drop(); }

 private:
  MappedFile file_;
  std::map<std::string, View> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data;
};

/// Writes a safetensors file atomically.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace mft
