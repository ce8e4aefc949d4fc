#pragma once

// Denormals: floats below 1.2e-38. An Intel CPU takes a hundred cycles or more for each operation with one, and the
// decays of recurrent layers produce many.

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace mft {

// While it lives, this thread computes with 0 in place of denormals. Arm CPUs are left as they are.
class FlushDenormals {
#if defined(__SSE2__)
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;  // of results, and of inputs
  const unsigned before_;
#else
 public:
  FlushDenormals() {}
#endif
};

}  // namespace mft
