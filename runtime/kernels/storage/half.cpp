#include "runtime/kernels/storage/half.h"

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 16384;
constexpr float kLargest = 65504.f;

}  // namespace

void to_half(const float* x, int64_t n, uint16_t* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kVec <= end; i += kVec) store_half(out + i, clamp(load(x + i), -kLargest, kLargest));
    for (; i < end; ++i) {
      uint16_t lanes[kVec];
      store_half(lanes, clamp(splat(x[i]), -kLargest, kLargest));
      out[i] = lanes[0];
    }
  });
}

void from_half(const uint16_t* x, int64_t n, float* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kVec <= end; i += kVec) store(out + i, load_half(reinterpret_cast<const uint8_t*>(x + i)));
    for (; i < end; ++i) out[i] = half_to_float(reinterpret_cast<const uint8_t*>(x + i));
  });
}

}  // namespace mft::MFT_ISA
