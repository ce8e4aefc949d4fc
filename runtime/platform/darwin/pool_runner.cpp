#include "runtime/platform/pool_runner.h"

// Darwin lets no thread choose another's core; it boosts those that others wait for itself.

namespace mft {

void PoolRunner::enter(bool stays) { stays_ = stays; }
void PoolRunner::end() { computes_ = false; }
int64_t PoolRunner::run_time() const { return -1; }
bool PoolRunner::bring_here() { return false; }
void PoolRunner::leave() {}

}  // namespace mft
