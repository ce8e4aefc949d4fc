/* LD_PRELOAD: the wall clock jumps 400 days back and forth with every look at it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static time_t jump(void) {
  static atomic_int looks;
  return (atomic_fetch_add(&looks, 1) % 2 ? 1 : -1) * (time_t)400 * 24 * 60 * 60;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  int (*real)(clockid_t, struct timespec*) = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
  return result;
}

time_t time(time_t* now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != NULL) *now = exact.tv_sec;
  return exact.tv_sec;
}

int gettimeofday(struct timeval* now, void* zone) {
  int (*real)(struct timeval*, void*) = dlsym(RTLD_NEXT, "gettimeofday");
  const int result = real(now, zone);
  if (result == 0) now->tv_sec += jump();
  return result;
}
