#include "runtime/bundle/weight_store.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/process_memory.h"
#include "runtime/base/sha256.h"

namespace mft {
namespace {

constexpr uint64_t kVerifiedAtOnce = uint64_t{1} << 20;  // bytes that are resident during verification

constexpr uint64_t kMostIndexBytes = uint64_t{64} << 20;

/// Returns the index after comparing it with bundle.json.
std::string checked_index(const OpenFile& file, const FileChecksum& expected) {
  if (expected.size > kMostIndexBytes)
    fail(file.path(), ": its index has ", expected.size, " bytes; at most ", kMostIndexBytes, " are supported");
  std::string index = file.beginning(expected.size);
  Sha256 sha;
  sha.update(index.data(), index.size());
  if (sha.hex() != expected.sha256) {
    fail(file.path(),
         ": the checksum of its index does not match bundle.json; the file is damaged or was edited; export the bundle "
         "again");
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

std::vector<WeightStore::Run> WeightStore::runs(const std::vector<std::string>& names) const {
  std::vector<Run> runs;
  uint64_t end = 0;
  for (const std::string& name : names) {
    const FilePlace at = place(name);
    if (runs.empty() || at.offset < end || at.offset - end >= page_bytes()) runs.push_back({{at.offset, 0}, {}});
    end = at.offset + at.bytes;
    runs.back().whole.bytes = end - runs.back().whole.offset;
    runs.back().tensors.push_back(at);
  }
  return runs;
}

MappedWeights WeightStore::map(const std::vector<std::string>& names) {
  MappedWeights mapped;
  // Unmapping interrupts every core that runs a thread of the process, so few large ranges are mapped instead of one
  // per tensor.
  for (const Run& run : runs(names)) {
    const MappedRange& range = mapped.ranges_.emplace_back(file_, run.whole.offset, run.whole.bytes);
    for (const FilePlace& at : run.tensors) {
      const uint64_t begin = at.offset - run.whole.offset;
      verify(names[mapped.size()], range, begin, at.bytes);
      mapped.weights_.push_back({range.data() + begin, at.bytes});
    }
  }
  return mapped;
}

size_t WeightStore::resident_bytes(const std::vector<std::string>& names) const {
  uint64_t total = 0;
  for (const auto& [at, tensors] : runs(names)) {
    total += (at.offset % page_bytes() + at.bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  }
  return total;
}

void WeightStore::verify(const std::string& name, const MappedRange& range, uint64_t begin, uint64_t bytes) {
  if (verified_.count(name) != 0) return;
  const auto expected = sha256_.find(name);
  if (expected == sha256_.end()) fail(file_.path(), ": tensor ", name, " has no checksum in bundle.json");
  Sha256 sha;
  for (uint64_t i = 0; i < bytes; i += kVerifiedAtOnce) {
    sha.update(range.data() + begin + i, std::min(kVerifiedAtOnce, bytes - i));
    range.drop();
  }
  if (sha.hex() != expected->second) {
    fail(file_.path(), ": tensor ", name,
         " does not match its checksum; the file is damaged or was edited; export the bundle again");
  }
  verified_.insert(name);
}

}  // namespace mft
