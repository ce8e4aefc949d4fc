#pragma once

namespace mft {

/// What the kernels compute with. A run that is resumed or repeated with another one differs in the last bits.
#if defined(__AVX2__)
constexpr const char* kArithmetic = "float32-avx2";
#elif defined(__ARM_NEON)
constexpr const char* kArithmetic = "float32-neon";
#elif defined(__SSE2__)
constexpr const char* kArithmetic = "float32-sse2";
#else
constexpr const char* kArithmetic = "float32";
#endif

}  // namespace mft
