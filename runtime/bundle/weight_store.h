#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/named_data.h"

namespace mft {

/// The weights of one unit, mapped during the object's lifetime. Destroying it unmaps them and drops their pages.
class MappedWeights {
 public:
  struct Weight {
    const void* data;
    size_t bytes;
  };
  const Weight& operator[](size_t i) const { return weights_[i]; }
  size_t size() const { return weights_.size(); }
  /// Starts reading the pages from disk, without mapping them into the process.
  void prefetch() const;
  /// Drops the pages from the process until they are read again.
  void drop() const;
  /// Tells the kernel not to read ahead around a touched page.
  void expect_random_access() const;

 private:
  friend class WeightStore;
  std::vector<Weight> weights_;
  std::vector<MappedRange> ranges_;  // consecutive tensors in the file share a range
};

/// The tensors of weights.ptd.
class WeightStore {
 public:
  /// Checks the file's index. Throws Error, with the file's name, if it is not readable or its checksum does not match.
  WeightStore(const std::string& path, const WeightChecksums& checksums);

  /// Maps the named tensors, and verifies each tensor the first time. Throws Error, with the file and the tensor, if
  /// one is missing or damaged.
  MappedWeights map(const std::vector<std::string>& names);
  /// The resident size of the tensors when they are mapped and completely read, in whole pages.
  size_t resident_bytes(const std::vector<std::string>& names) const;

 private:
  /// Consecutive tensors in the file, with less than a page between them.
  struct Run {
    FilePlace whole;
    std::vector<FilePlace> tensors;
  };

  FilePlace place(const std::string& name) const;
  std::vector<Run> runs(const std::vector<std::string>& names) const;
  /// Those that were not verified before, several at a time.
  void verify(const std::vector<std::string>& names);

  OpenFile file_;
  std::map<std::string, std::string> sha256_;
  std::set<std::string> verified_;
  std::map<std::string, FilePlace> places_;
};

}  // namespace mft
