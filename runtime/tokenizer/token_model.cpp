#include "runtime/tokenizer/token_model.h"

#include <cstdio>

namespace mft {

std::vector<int64_t> TokenModel::byte_tokens() const {
  std::vector<int64_t> ids;
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    ids.push_back(vocabulary_.find(name));
  }
  return ids;
}

}  // namespace mft
