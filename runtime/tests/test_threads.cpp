// parallel_for: its items flush denormals, with one thread and with several, and the caller's arithmetic stays.

#include <array>
#include <cfloat>

#include "runtime/platform/threads.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

int main() {
  const volatile float smallest = FLT_MIN, half = 0.5f;  // volatile: computed at run time
  for (const int64_t threads : {1, 2}) {
    const ThreadParts parts(threads);
    std::array<float, 64> results{}, inputs{};
    const volatile float denormal = smallest * half;
    CHECK(denormal > 0);
    parallel_for(64, [&](int64_t i) {
      results[i] = smallest * half;
      inputs[i] = denormal * 2.f;
    });
    for (int64_t i = 0; i < 64; ++i) {
#if defined(__x86_64__)
      CHECK(results[i] == 0 && inputs[i] == 0);
#else
      CHECK(results[i] == denormal && inputs[i] == smallest);
#endif
    }
    CHECK(smallest * half == denormal && denormal * 2.f == smallest);
  }
  return finish();
}
