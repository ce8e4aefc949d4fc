#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/named_data.h"

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
  /// Starts reading the pages from disk, without making them part of the process.
  void prefetch() const;
  /// Lets the pages leave the process until they are read again.
  void drop() const;
  /// The kernel need not read ahead around a page that is touched.
  void expect_random_access() const;

 private:
  friend class WeightStore;
  std::vector<Weight> weights_;
  std::vector<MappedRange> ranges_;  // tensors that follow each other in the file share one
};

/// The tensors of weights.ptd.
class WeightStore {
 public:
  /// Checks the file's index. Throws Error naming the file where it is not readable or not what was exported.
  WeightStore(const std::string& path, const WeightChecksums& checksums);

  /// Maps the named tensors, each one's content verified the first time. Throws Error naming file and tensor where one
  /// is missing or damaged.
  MappedWeights map(const std::vector<std::string>& names);
  /// What mapping them makes resident once all is read: whole pages.
  size_t resident_bytes(const std::vector<std::string>& names) const;

 private:
  /// Tensors that follow each other in the file, with less than a page between them.
  struct Run {
    FilePlace whole;
    std::vector<FilePlace> tensors;
  };

  FilePlace place(const std::string& name) const;
  std::vector<Run> runs(const std::vector<std::string>& names) const;
  void verify(const std::string& name, const MappedRange& range, uint64_t begin, uint64_t bytes);

  OpenFile file_;
  std::map<std::string, std::string> sha256_;
  std::set<std::string> verified_;
  std::map<std::string, FilePlace> places_;
};

}  // namespace mft
