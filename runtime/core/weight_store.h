#pragma once

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/bundle.h"

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
  /// Checks the file's index. Throws Error naming the file where it is not readable or not what was exported.
  WeightStore(const std::string& path, const WeightChecksums& checksums);

  /// Maps the named tensors, each one's content verified the first time. Throws Error naming file and tensor where one
  /// is missing or damaged.
  MappedWeights map(const std::vector<std::string>& names);
  /// What mapping them makes resident; reads nothing of them.
  size_t resident_bytes(const std::vector<std::string>& names) const;

 private:
  MappedWeights map_unverified(const std::vector<std::string>& names) const;
  void verify(const std::string& name, const MappedWeights::Weight& weight);

  std::string path_;
  std::map<std::string, std::string> sha256_;
  std::set<std::string> verified_;
  std::unique_ptr<executorch::extension::MmapDataLoader> loader_;
  std::unique_ptr<executorch::extension::FlatTensorDataMap> data_;
};

}  // namespace mft
