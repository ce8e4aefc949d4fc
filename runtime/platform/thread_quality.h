#pragma once

namespace mft {

/// Darwin's quality of service of this thread, by which it chooses between big and little cores. The pool's threads
/// take that of their caller. Always 0 on Linux.
int thread_quality();
void set_thread_quality(int quality);

}  // namespace mft
