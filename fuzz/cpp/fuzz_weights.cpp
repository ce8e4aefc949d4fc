/// The index of weights.ptd, before the tensors as they were exported, with checksums of what it makes of them.

#include <nlohmann/json.hpp>

#include "fuzz/cpp/fuzz.h"

static const mft_fuzz::TestBundle& bundle() {
  static const mft_fuzz::TestBundle copy;
  return copy;
}

static size_t index_size() {
  static const size_t size = nlohmann::json::parse(bundle().original("bundle.json")).at("weights").at("index_size");
  return size;
}

std::vector<std::string> seeds() { return {bundle().original("weights.ptd").substr(0, index_size())}; }

void run(const std::string& data) {
  bundle().replace_weights(data + bundle().original("weights.ptd").substr(index_size()), data.size());
  mft_fuzz::use_bundle(bundle().folder());
}
