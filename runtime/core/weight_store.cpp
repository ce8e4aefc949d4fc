#include "runtime/core/weight_store.h"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/sha256.h"

namespace mft {

using executorch::extension::FlatTensorDataMap;
using executorch::extension::MmapDataLoader;

namespace {

constexpr size_t kVerifiedAtOnce = size_t{1} << 20;  // bytes that verifying makes resident

// f(first page, bytes to the end).
template <typename F>
void for_pages(const MappedWeights::Weight& weight, const F& f) {
  const uintptr_t page = page_bytes(), begin = reinterpret_cast<uintptr_t>(weight.data);
  const size_t bytes = (begin % page + weight.bytes + page - 1) / page * page;
  f(reinterpret_cast<void*>(begin / page * page), bytes);
}

template <typename F>
void for_pages(const MappedWeights& weights, const F& f) {
  for (size_t i = 0; i < weights.size(); ++i) for_pages(weights[i], f);
}

void advise(const MappedWeights& weights, int advice) {
  for_pages(weights, [&](void* begin, size_t bytes) { madvise(begin, bytes, advice); });
}

}  // namespace

size_t MappedWeights::resident_bytes() const {
  size_t total = 0;
  for_pages(*this, [&](void*, size_t bytes) { total += bytes; });
  return total;
}

void MappedWeights::prefetch() const { advise(*this, MADV_WILLNEED); }
void MappedWeights::drop() const { advise(*this, MADV_DONTNEED); }
void MappedWeights::expect_random_access() const { advise(*this, MADV_RANDOM); }

WeightStore::WeightStore(const std::string& path, const WeightChecksums& checksums)
    : path_(path), sha256_(checksums.sha256) {
  if (sha256_of_file(path, checksums.index.size) != checksums.index.sha256) {
    fail(path, ": its index differs from bundle.json; it is damaged or was edited, export the bundle again");
  }
  auto loader = MmapDataLoader::from(path_.c_str(), MmapDataLoader::MlockConfig::NoMlock);
  if (!loader.ok()) fail(path, ": cannot be opened");
  loader_ = std::make_unique<MmapDataLoader>(std::move(loader.get()));
  auto data = FlatTensorDataMap::load(loader_.get());
  if (!data.ok()) fail(path, ": not an ExecuTorch named-data file, export the bundle again");
  data_ = std::make_unique<FlatTensorDataMap>(std::move(data.get()));
}

MappedWeights WeightStore::map_unverified(const std::vector<std::string>& names) const {
  MappedWeights mapped;
  for (const std::string& name : names) {
    auto buffer = data_->get_data(name);
    if (!buffer.ok()) fail(path_, ": tensor ", name, " is missing or lies outside the file");
    mapped.weights_.push_back({buffer->data(), buffer->size()});
    mapped.buffers_.push_back(std::move(buffer.get()));
  }
  return mapped;
}

MappedWeights WeightStore::map(const std::vector<std::string>& names) {
  MappedWeights mapped = map_unverified(names);
  for (size_t i = 0; i < names.size(); ++i) verify(names[i], mapped[i]);
  return mapped;
}

size_t WeightStore::resident_bytes(const std::vector<std::string>& names) const {
  return map_unverified(names).resident_bytes();
}

void WeightStore::verify(const std::string& name, const MappedWeights::Weight& weight) {
  if (verified_.count(name) != 0) return;
  const auto expected = sha256_.find(name);
  if (expected == sha256_.end()) fail(path_, ": tensor ", name, " has no checksum in bundle.json");
  Sha256 sha;
  const uint8_t* data = static_cast<const uint8_t*>(weight.data);
  for (size_t i = 0; i < weight.bytes; i += kVerifiedAtOnce) {
    const MappedWeights::Weight part{data + i, std::min(kVerifiedAtOnce, weight.bytes - i)};
    sha.update(part.data, part.bytes);
    for_pages(part, [](void* begin, size_t bytes) { madvise(begin, bytes, MADV_DONTNEED); });
  }
  if (sha.hex() != expected->second) {
    fail(path_, ": tensor ", name, " differs from its checksum; it is damaged or was edited, export the bundle again");
  }
  verified_.insert(name);
}

}  // namespace mft
