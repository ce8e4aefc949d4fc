#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/tests/test_support.h"

// A fuzzer is a file fuzz_<format>.cpp with these two functions; fuzz.cpp does the rest.

/// Valid inputs to start from.
std::vector<std::string> seeds();
/// Reads `data` as a user's command would. May throw mft::Error; another exception is a finding, as are a crash, ten
/// seconds and a gigabyte.
void run(const std::string& data);

namespace mft_fuzz {

using mft_test::read_file;
using mft_test::write_file;

/// A folder of this process's own that is gone after it.
const std::string& scratch_folder();

/// A copy of the bundle that the environment variable MFT_TEST_BUNDLE names, whose files may be damaged.
class TestBundle {
 public:
  TestBundle();
  const std::string& folder() const { return folder_; }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  /// The file as it was exported.
  const std::string& original(const std::string& name) const { return originals_.at(name); }
  /// Writes a file of another content, and bundle.json with its checksum, so that the content is what is read.
  void replace(const std::string& name, const std::string& content) const;
  /// Likewise weights.ptd, with the checksums of what its index says are its tensors.
  void replace_weights(const std::string& content, size_t index_size) const;

 private:
  std::string folder_;
  std::map<std::string, std::string> originals_;
};

/// A token file of a few rows, and its path.
const std::string& tokens_path();

/// Trains two steps from the bundle, with each way of the backward, evaluates and generates: calls every method.
void use_bundle(const std::string& folder, const std::string& adapter = "");

}  // namespace mft_fuzz
