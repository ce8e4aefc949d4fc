#include "runtime/train/prefix_cache.h"

namespace mft {

PrefixCache::PrefixCache(const std::string& folder, const TokenFile& data, int64_t hidden_size)
    : data_(data.sha256()),
      begins_(data.offsets()),
      token_bytes_(static_cast<size_t>(hidden_size) * sizeof(float)),
      passed_(static_cast<size_t>(data.sequences())) {
  file_ = OffloadFile(folder, offset(data.sequences()));
}

uint64_t PrefixCache::offset(int64_t sequence) const {
  return static_cast<uint64_t>(begins_[static_cast<size_t>(sequence)]) * token_bytes_;
}

size_t PrefixCache::bytes(int64_t sequence) const {
  return static_cast<size_t>(offset(sequence + 1) - offset(sequence));
}

void PrefixCache::read(int64_t sequence, float* x) const { file_.read(offset(sequence), x, bytes(sequence)); }

void PrefixCache::write(int64_t sequence, size_t passed, const float* x) {
  passed_[static_cast<size_t>(sequence)] = 0;  // should the write fail half way
  file_.write(offset(sequence), x, bytes(sequence));
  passed_[static_cast<size_t>(sequence)] = passed;
}

}  // namespace mft
