#include "runtime/kernels/linear/embedding.h"

#include <algorithm>

#include "runtime/kernels/linear/decode.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

bool embedding(const int64_t* tokens, int64_t t, const PackedWeight& table, float scale, float* out) {
  const auto valid = [&](int64_t token) { return token >= 0 && token < table.rows; };
  if (!std::all_of(tokens, tokens + t, valid)) return false;
  parallel_ranges(t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = out + i * table.cols;
      decode_row(table, tokens[i], row);
      if (scale == 1.f) continue;
      for (int64_t k = 0; k < table.cols; ++k) row[k] *= scale;
    }
  });
  return true;
}

}  // namespace mft::MFT_ISA
