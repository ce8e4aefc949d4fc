#include "runtime/platform/process.h"

#include <sys/event.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace mft {
namespace {

/// Waits for the end of a process. Returns false if the system cannot tell.
bool wait_for_end(int64_t process) {
  const int queue = kqueue();
  if (queue < 0) return false;
  struct kevent event;
  EV_SET(&event, static_cast<uintptr_t>(process), EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, nullptr);
  int found = -1;
  do {
    found = kevent(queue, &event, 1, &event, 1, nullptr);
  } while (found < 0 && errno == EINTR);
  // An error of the registration comes as an event. ESRCH: the process had ended before.
  const bool ended = found == 1 && ((event.flags & EV_ERROR) == 0 || event.data == ESRCH);
  close(queue);
  return ended;
}

}  // namespace

void end_with_process(int64_t parent) {
  std::thread([parent] {
    if (wait_for_end(parent)) kill(getpid(), SIGTERM);
  }).detach();
  if (getppid() != parent) raise(SIGTERM);  // the parent has already ended
}

void use_small_pages() {}

}  // namespace mft
