#include "runtime/platform/process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

namespace mft {

void end_with_process(int64_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) raise(SIGTERM);  // the parent has already ended
}

void use_small_pages() { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

}  // namespace mft
