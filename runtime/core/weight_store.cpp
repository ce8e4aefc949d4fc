#include "runtime/core/weight_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/core/error.h"

namespace mft {

using executorch::extension::FlatTensorDataMap;
using executorch::extension::MmapDataLoader;

namespace {

// f(first page, bytes to the end) for every weight.
template <typename F>
void for_pages(const MappedWeights& weights, const F& f) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < weights.size(); ++i) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(weights[i].data);
    const size_t bytes = (begin % page + weights[i].bytes + page - 1) / page * page;
    f(reinterpret_cast<void*>(begin / page * page), bytes);
  }
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

WeightStore::WeightStore(const std::string& path) : path_(path) {
  auto loader = MmapDataLoader::from(path_.c_str(), MmapDataLoader::MlockConfig::NoMlock);
  if (!loader.ok()) fail(path, ": cannot be opened");
  loader_ = std::make_unique<MmapDataLoader>(std::move(loader.get()));
  auto data = FlatTensorDataMap::load(loader_.get());
  if (!data.ok()) fail(path, ": not an ExecuTorch named-data file, export the bundle again");
  data_ = std::make_unique<FlatTensorDataMap>(std::move(data.get()));
}

MappedWeights WeightStore::map(const std::vector<std::string>& names) const {
  MappedWeights mapped;
  for (const std::string& name : names) {
    auto buffer = data_->get_data(name);
    if (!buffer.ok()) fail(path_, ": tensor ", name, " is missing or lies outside the file");
    mapped.weights_.push_back({buffer->data(), buffer->size()});
    mapped.buffers_.push_back(std::move(buffer.get()));
  }
  return mapped;
}

}  // namespace mft
