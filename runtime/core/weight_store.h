#pragma once

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>

#include <memory>
#include <string>
#include <vector>

namespace mft {

/// Weights of one unit, mapped while this object lives: destroying it unmaps them, and their pages leave the process.
class MappedWeights {
 public:
  struct Weight {
    const void* data;
    size_t bytes;
  };
  const Weight& operator[](size_t i) const { return weights_[i]; }
  size_t size() const { return weights_.size(); }
  /// What the process holds once all is read: whole pages, each tensor's by themselves.
  size_t resident_bytes() const;
  /// Starts reading the pages from disk, without making them part of the process.
  void prefetch() const;
  /// Lets the pages leave the process until they are read again.
  void drop() const;
  /// The kernel need not read ahead around a page that is touched.
  void expect_random_access() const;

 private:
  friend class WeightStore;
  std::vector<executorch::runtime::FreeableBuffer> buffers_;
  std::vector<Weight> weights_;
};

/// weights.ptd, read through ExecuTorch's named-data map.
class WeightStore {
 public:
  /// Throws Error naming the file where it is not readable.
  explicit WeightStore(const std::string& path);

  /// Maps the named tensors. Throws Error naming file and tensor where one is missing.
  MappedWeights map(const std::vector<std::string>& names) const;

 private:
  std::string path_;
  std::unique_ptr<executorch::extension::MmapDataLoader> loader_;
  std::unique_ptr<executorch::extension::FlatTensorDataMap> data_;
};

}  // namespace mft
