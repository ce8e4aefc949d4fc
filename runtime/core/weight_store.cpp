#include "runtime/core/weight_store.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/sha256.h"

namespace mft {
namespace {

constexpr uint64_t kVerifiedAtOnce = uint64_t{1} << 20;  // bytes that verifying makes resident

constexpr uint64_t kMostIndexBytes = uint64_t{64} << 20;

/// The index, once it is what bundle.json says.
std::string checked_index(const OpenFile& file, const FileChecksum& expected) {
  if (expected.size > kMostIndexBytes) fail(file.path(), ": an index of ", expected.size, " bytes");
  std::string index = file.beginning(expected.size);
  Sha256 sha;
  sha.update(index.data(), index.size());
  if (sha.hex() != expected.sha256) {
    fail(file.path(), ": its index differs from bundle.json; it is damaged or was edited, export the bundle again");
  }
  return index;
}

}  // namespace

void MappedWeights::prefetch() const {
  for (const MappedRange& range : ranges_) range.advise(MADV_WILLNEED);
}

void MappedWeights::drop() const {
  for (const MappedRange& range : ranges_) range.drop();
}

void MappedWeights::expect_random_access() const {
  for (const MappedRange& range : ranges_) range.advise(MADV_RANDOM);
}

WeightStore::WeightStore(const std::string& path, const WeightChecksums& checksums)
    : file_(path), sha256_(checksums.sha256), places_(read_named_data(file_, checked_index(file_, checksums.index))) {}

FilePlace WeightStore::place(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) fail(file_.path(), ": tensor ", name, " is missing");
  return found->second;
}

MappedWeights WeightStore::map(const std::vector<std::string>& names) {
  MappedWeights mapped;
  for (const std::string& name : names) {
    const FilePlace at = place(name);
    mapped.ranges_.emplace_back(file_, at.offset, at.bytes);
    verify(name, mapped.ranges_.back());
  }
  return mapped;
}

size_t WeightStore::resident_bytes(const std::vector<std::string>& names) const {
  uint64_t total = 0;
  for (const std::string& name : names) {
    const FilePlace at = place(name);
    total += (at.offset % page_bytes() + at.bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  }
  return total;
}

void WeightStore::verify(const std::string& name, const MappedRange& tensor) {
  if (verified_.count(name) != 0) return;
  const auto expected = sha256_.find(name);
  if (expected == sha256_.end()) fail(file_.path(), ": tensor ", name, " has no checksum in bundle.json");
  Sha256 sha;
  for (uint64_t i = 0; i < tensor.size(); i += kVerifiedAtOnce) {
    sha.update(tensor.data() + i, std::min(kVerifiedAtOnce, tensor.size() - i));
    tensor.drop();
  }
  if (sha.hex() != expected->second) {
    fail(file_.path(), ": tensor ", name,
         " differs from its checksum; it is damaged or was edited, export the bundle again");
  }
  verified_.insert(name);
}

}  // namespace mft
