#include "runtime/kernels/embedding.h"

#include <algorithm>

#include "runtime/kernels/threads.h"

namespace mft {

bool embedding(const int64_t* tokens, int64_t t, const PackedWeight& table, float* out) {
  const auto valid = [&](int64_t token) { return token >= 0 && token < table.rows; };
  if (!std::all_of(tokens, tokens + t, valid)) return false;
  parallel_ranges(t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) decode_row(table, tokens[i], out + i * table.cols);
  });
  return true;
}

}  // namespace mft
