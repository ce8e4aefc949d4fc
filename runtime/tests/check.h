#pragma once

// Checks that print where they failed and carry on; return mft_test::finish() from main.

#include <cmath>
#include <cstdio>

namespace mft_test {

inline int failures = 0;

inline int finish() {
  std::printf(failures == 0 ? "ok\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace mft_test

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ++mft_test::failures;                                               \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                     \
  } while (0)

// |a - b| <= tolerance; a NaN fails.
#define CHECK_NEAR(a, b, tolerance)                                                               \
  do {                                                                                            \
    const double check_a = (a);                                                                   \
    const double check_b = (b);                                                                   \
    if (!(std::fabs(check_a - check_b) <= (tolerance))) {                                         \
      ++mft_test::failures;                                                                       \
      std::printf("%s:%d: %s = %.9g, %s = %.9g\n", __FILE__, __LINE__, #a, check_a, #b, check_b); \
    }                                                                                             \
  } while (0)
