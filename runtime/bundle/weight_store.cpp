#include "runtime/bundle/weight_store.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/sha256.h"
#include "runtime/platform/pages.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

constexpr size_t kVerifiedAtOnce = size_t{1} << 18;  // bytes that each thread has resident during verification

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
  verify(names);
  MappedWeights mapped;
  // Unmapping interrupts every core that runs a thread of the process, so few large ranges are mapped instead of one
  // per tensor.
  for (const Run& run : runs(names)) {
    const MappedRange& range = mapped.ranges_.emplace_back(file_, run.whole.offset, run.whole.bytes);
    for (const FilePlace& at : run.tensors) {
      const uint64_t begin = at.offset - run.whole.offset;
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

void WeightStore::verify(const std::vector<std::string>& names) {
  struct Unverified {
    std::string name, expected;
    MappedRange range;
    Sha256 sha;
  };
  std::vector<Unverified> tensors;
  for (const std::string& name : names) {
    if (verified_.count(name) != 0) continue;
    const auto expected = sha256_.find(name);
    if (expected == sha256_.end()) fail(file_.path(), ": tensor ", name, " has no checksum in bundle.json");
    const FilePlace at = place(name);
    tensors.push_back({name, expected->second, MappedRange(file_, at.offset, at.bytes), {}});
  }
  // Checksums take longer than anything else when a bundle is opened. The largest first, so that threads end together.
  std::sort(tensors.begin(), tensors.end(),
            [](const Unverified& a, const Unverified& b) { return a.range.size() > b.range.size(); });
  parallel_for(static_cast<int64_t>(tensors.size()), [&](int64_t i) {
    Unverified& tensor = tensors[static_cast<size_t>(i)];
    for (size_t at = 0; at < tensor.range.size(); at += kVerifiedAtOnce) {
      tensor.sha.update(tensor.range.data() + at, std::min(kVerifiedAtOnce, tensor.range.size() - at));
      tensor.range.drop();
    }
  });
  for (Unverified& tensor : tensors) {
    if (tensor.sha.hex() != tensor.expected) {
      fail(file_.path(), ": tensor ", tensor.name,
           " does not match its checksum; the file is damaged or was edited; export the bundle again");
    }
    verified_.insert(tensor.name);
  }
}

}  // namespace mft
