/* Counts what a process does to files below one folder, keeps a journal of it, and lets one call fail.
 *
 * Loaded by LD_PRELOAD. The environment says what to do (FAULTS_ROOT, FAULTS_JOURNAL, FAULTS_AT, FAULTS_KIND), or
 * faults_arm() once the process runs. Calls are counted from 0; a journal has all of them with the bytes they wrote, so
 * that replay.py knows what would be on disk after each. What is done without these calls is in no journal, and a
 * replay that differs from the folder shows it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum Op { OPEN = 1, WRITE, TRUNCATE, ALLOCATE, RENAME, UNLINK, MKDIR, RMDIR, SYNC, CLOSE, DUP, TOLD, UNKNOWN };
enum Kind { NONE, FULL, BROKEN, INTERRUPTED, SHORT, CUT };
enum { MOST_FDS = 4096 };

struct Record {
  int32_t op, result, fd, counted; /* counted: which call this is, -1 where it is none that can fail */
  uint64_t offset;                 /* of a write; a size, or flags, of other calls */
  uint32_t path_bytes, other_bytes;
  uint64_t data_bytes;
};

static char root[PATH_MAX];
static size_t root_bytes;
static int journal = -1, at = -1, kind = NONE, calls = 0;
static unsigned char watched[MOST_FDS]; /* 1: read only, 2: written */
static char* names[MOST_FDS];           /* of those that are written, where open() gave them */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void faults_arm(const char* path, int call, int what) {
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  journal = fcntl(fd, F_DUPFD_CLOEXEC, 900);
  syscall(SYS_close, fd);
  at = call;
  kind = what;
  calls = 0;
}

__attribute__((constructor)) static void start(void) {
  const char* folder = getenv("FAULTS_ROOT");
  if (folder == NULL) return;
  root_bytes = (size_t)snprintf(root, sizeof root, "%s", folder);
  const char* path = getenv("FAULTS_JOURNAL");
  if (path != NULL) faults_arm(path, atoi(getenv("FAULTS_AT")), atoi(getenv("FAULTS_KIND")));
}

static void put(const void* data, size_t size) {
  for (const char* from = data; size > 0;) {
    const long n = syscall(SYS_write, journal, from, size);
    if (n <= 0) abort();
    from += n;
    size -= (size_t)n;
  }
}

static void tell(int op, long result, int fd, int counted, uint64_t offset, const char* path, const char* other,
                 const void* data, size_t bytes) {
  const int error = errno;
  const struct Record record = {
      op, (int32_t)result, fd, counted, offset, (uint32_t)strlen(path), (uint32_t)strlen(other), bytes};
  put(&record, sizeof record);
  put(path, record.path_bytes);
  put(other, record.other_bytes);
  put(data, bytes);
  errno = error;
}

/* The absolute path, empty where it is not below the folder. */
static const char* below(int folder, const char* path, char* room) {
  char from[PATH_MAX] = "";
  if (path == NULL || journal < 0) return "";
  if (path[0] != '/') {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t n = folder == AT_FDCWD ? (getcwd(from, sizeof from) ? (ssize_t)strlen(from) : -1)
                                         : readlink(link, from, sizeof from - 1);
    if (n < 0) return "";
    from[n] = '/';
    from[n + 1] = 0;
  }
  if (snprintf(room, PATH_MAX, "%s%s", from, path) >= PATH_MAX) return "";
  size_t n = strlen(room);
  while (n > 1 && room[n - 1] == '/') room[--n] = 0;
  const int inside = strncmp(room, root, root_bytes) == 0 && (room[root_bytes] == '/' || room[root_bytes] == 0);
  return inside ? room : "";
}

static int is_watched(int fd) { return fd >= 0 && fd < MOST_FDS && journal >= 0 ? watched[fd] : 0; }

/* The number of this call, and what is to happen to it. */
static int next(enum Op op, enum Kind* what) {
  const int number = calls++;
  *what = number == at ? (enum Kind)kind : NONE;
  if (kind == FULL && at >= 0 && number > at && (op == OPEN || op == WRITE || op == ALLOCATE || op == MKDIR))
    *what = FULL;
  if (*what == CUT) _exit(86);
  return number;
}

/* The error of a call that fails, 0 of one that does not. */
static int error_of(enum Kind what) {
  return what == FULL ? ENOSPC : what == BROKEN ? EIO : what == INTERRUPTED ? EINTR : 0;
}

static int opened(const char* path, int flags, int counted, int fd) {
  tell(OPEN, fd, fd, counted, (uint64_t)flags, path, "", "", 0);
  if (fd < 0 || fd >= MOST_FDS) return fd;
  watched[fd] = (flags & O_ACCMODE) == O_RDONLY ? 1 : 2;
  free(names[fd]);
  names[fd] = strdup(path);
  return fd;
}

/* A name that was changed past the C library, as safetensors' own writer does, is found out when the file is closed. */
static void find_new_name(int fd) {
  char link[64], found[PATH_MAX], room[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, found, sizeof found - 1);
  if (n < 0 || names[fd] == NULL) return;
  found[n] = 0;
  if (strstr(found, " (deleted)") || strcmp(found, names[fd]) == 0 || !*below(AT_FDCWD, found, room)) return;
  tell(RENAME, 0, -1, -1, 0, names[fd], found, "", 0);
}

static int open_at(int folder, const char* path, int flags, mode_t mode) {
  char room[PATH_MAX];
  const char* inside = below(folder, path, room);
  if (!*inside) {
    const int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && fd < MOST_FDS) watched[fd] = 0;
    return fd;
  }
  pthread_mutex_lock(&mutex);
  enum Kind what = NONE;
  int number = -1, fd = -1;
  struct stat status;
  const int exists = fstatat(folder, path, &status, 0) == 0;
  if ((flags & O_TRUNC) || ((flags & O_CREAT) && !exists) || (flags & O_ACCMODE) != O_RDONLY)
    number = next(OPEN, &what);
  if (what == FULL && exists) what = NONE; /* nothing new is needed */
  if ((errno = error_of(what)) == 0) fd = (int)syscall(SYS_openat, folder, path, flags, mode);
  opened(inside, flags, number, fd);
  pthread_mutex_unlock(&mutex);
  return fd;
}

#define MODE(flags)                        \
  mode_t mode = 0;                         \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list rest;                          \
    va_start(rest, flags);                 \
    mode = va_arg(rest, mode_t);           \
    va_end(rest);                          \
  }

int open(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int __open_2(const char* path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int creat(const char* path, mode_t mode) { return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

static int make_temporary(char* name, int flags) {
  char room[PATH_MAX];
  if (!*below(AT_FDCWD, name, room)) return REAL(mkostemp)(name, flags);
  pthread_mutex_lock(&mutex);
  enum Kind what;
  const int number = next(OPEN, &what);
  int fd = -1;
  if ((errno = error_of(what)) == 0) fd = REAL(mkostemp)(name, flags);
  opened(below(AT_FDCWD, name, room), O_RDWR | O_CREAT | O_EXCL, number, fd);
  pthread_mutex_unlock(&mutex);
  return fd;
}
int mkostemp(char* name, int flags) { return make_temporary(name, flags); }
int mkostemp64(char* name, int flags) { return make_temporary(name, flags); }
int mkstemp(char* name) { return make_temporary(name, 0); }
int mkstemp64(char* name) { return make_temporary(name, 0); }

/* A write at `offset`, or where the file stands. */
static ssize_t write_at(int fd, const void* data, size_t size, off_t offset, int positioned) {
  if (fd == 1 && journal >= 0) tell(TOLD, 0, fd, -1, 0, "", "", data, size);
  if (is_watched(fd) != 2) {
    return positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
  }
  pthread_mutex_lock(&mutex);
  enum Kind what;
  const int first = calls == at, number = next(WRITE, &what);
  if (size > 1 && (what == SHORT || (what == FULL && first))) size /= 2, what = NONE;
  ssize_t n = -1;
  if ((errno = error_of(what)) == 0) {
    n = positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    if (!positioned && n >= 0) offset = lseek(fd, 0, SEEK_CUR) - n;
  }
  tell(WRITE, n, fd, number, (uint64_t)offset, "", "", data, n > 0 ? (size_t)n : 0);
  pthread_mutex_unlock(&mutex);
  return n;
}
ssize_t write(int fd, const void* data, size_t size) { return write_at(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) { return write_at(fd, data, size, offset, 1); }

ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (fd != 1 && is_watched(fd) != 2) return syscall(SYS_writev, fd, parts, count);
  size_t size = 0;
  for (int i = 0; i < count; ++i) size += parts[i].iov_len;
  char* all = malloc(size + 1);
  size = 0;
  for (int i = 0; i < count; ++i) {
    memcpy(all + size, parts[i].iov_base, parts[i].iov_len);
    size += parts[i].iov_len;
  }
  const ssize_t n = write_at(fd, all, size, 0, 0);
  const int error = errno;
  free(all);
  errno = error;
  return n;
}

/* sendfile and its like: what was read is written by the calls above. */
static ssize_t copied(int out, int in, off64_t* offset, size_t size) {
  if (size > (1 << 20)) size = 1 << 20;
  char* data = malloc(size + 1);
  const off64_t from = offset ? *offset : lseek(in, 0, SEEK_CUR);
  ssize_t n = pread(in, data, size, from);
  if (n > 0) n = write_at(out, data, (size_t)n, 0, 0);
  const int error = errno;
  if (n > 0 && offset) *offset += n;
  if (n > 0 && !offset) lseek(in, from + n, SEEK_SET);
  free(data);
  errno = error;
  return n;
}
ssize_t sendfile(int out, int in, off_t* offset, size_t size) {
  return is_watched(out) == 2 ? copied(out, in, offset, size) : syscall(SYS_sendfile, out, in, offset, size);
}
ssize_t sendfile64(int out, int in, off64_t* offset, size_t size) { return sendfile(out, in, offset, size); }
ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* to, size_t size, unsigned flags) {
  if (is_watched(out) == 2 && to == NULL) return copied(out, in, from, size);
  if (is_watched(out) == 2) tell(UNKNOWN, 0, out, -1, 0, "copy_file_range", "", "", 0);
  return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
}

/* A call on an open file that takes no data: `op` on `fd` is journalled with `size`. */
#define ON_FILE(op, fd, size, call)                              \
  pthread_mutex_lock(&mutex);                                    \
  enum Kind what;                                                \
  const int number = next(op, &what);                            \
  int result = -1;                                               \
  if ((errno = error_of(what)) == 0) result = (int)(call);       \
  tell(op, result, fd, number, (uint64_t)(size), "", "", "", 0); \
  pthread_mutex_unlock(&mutex);

int ftruncate(int fd, off_t size) {
  if (is_watched(fd) != 2) return (int)syscall(SYS_ftruncate, fd, size);
  ON_FILE(TRUNCATE, fd, size, syscall(SYS_ftruncate, fd, size))
  return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (is_watched(fd) != 2) return (int)syscall(SYS_fallocate, fd, mode, offset, size);
  ON_FILE(ALLOCATE, fd, offset + size, syscall(SYS_fallocate, fd, mode, offset, size))
  return result;
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }

int posix_fallocate(int fd, off_t offset, off_t size) {
  if (is_watched(fd) != 2) return REAL(posix_fallocate)(fd, offset, size);
  return fallocate(fd, 0, offset, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

int fsync(int fd) {
  if (!is_watched(fd)) return (int)syscall(SYS_fsync, fd);
  ON_FILE(SYNC, fd, 0, 0) /* what that would bring to disk is the journal's to say, and the disk's time is saved */
  return result;
}
int fdatasync(int fd) { return is_watched(fd) ? fsync(fd) : (int)syscall(SYS_fdatasync, fd); }
int syncfs(int fd) {
  if (is_watched(fd)) tell(UNKNOWN, 0, fd, -1, 0, "syncfs", "", "", 0);
  return (int)syscall(SYS_syncfs, fd);
}

int close(int fd) {
  const int how = is_watched(fd);
  if (how) watched[fd] = 0;
  if (how != 2) {
    if (how) tell(CLOSE, 0, fd, -1, 0, "", "", "", 0);
    return (int)syscall(SYS_close, fd);
  }
  pthread_mutex_lock(&mutex);
  find_new_name(fd);
  enum Kind what;
  const int number = next(CLOSE, &what);
  free(names[fd]);
  names[fd] = NULL;
  int result = (int)syscall(SYS_close, fd); /* Linux closes it whatever it answers */
  tell(CLOSE, 0, fd, number, 0, "", "", "", 0);
  if (what == BROKEN || what == INTERRUPTED || what == FULL) errno = error_of(what), result = -1;
  pthread_mutex_unlock(&mutex);
  return result;
}

void* mmap(void* where, size_t size, int protection, int flags, int fd, off_t offset) {
  if (is_watched(fd) == 2 && (protection & PROT_WRITE) && (flags & MAP_SHARED))
    tell(UNKNOWN, 0, fd, -1, 0, "mmap", "", "", 0);
  return (void*)syscall(SYS_mmap, where, size, protection, flags, fd, offset);
}
void* mmap64(void* where, size_t size, int protection, int flags, int fd, off64_t offset) {
  return mmap(where, size, protection, flags, fd, offset);
}

static int duplicated(int old, int fd) {
  if (fd >= 0 && fd < MOST_FDS) watched[fd] = (unsigned char)is_watched(old);
  if (is_watched(old)) tell(DUP, fd, fd, -1, (uint64_t)old, "", "", "", 0);
  return fd;
}
int dup(int fd) { return duplicated(fd, (int)syscall(SYS_dup, fd)); }
int dup2(int fd, int as) { return duplicated(fd, (int)syscall(SYS_dup3, fd, as, 0)); }
int dup3(int fd, int as, int flags) { return duplicated(fd, (int)syscall(SYS_dup3, fd, as, flags)); }
int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const int result = (int)syscall(SYS_fcntl, fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicated(fd, result) : result;
}
int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return fcntl64(fd, command, argument);
}

/* stdio's own calls cannot be seen, so files of the folder get a FILE that calls ours. NumPy's tofile() takes one. */
static ssize_t cookie_read(void* fd, char* data, size_t size) { return read((int)(intptr_t)fd, data, size); }
static ssize_t cookie_write(void* fd, const char* data, size_t size) {
  const ssize_t n = write((int)(intptr_t)fd, data, size);
  return n < 0 ? 0 : n;
}
static int cookie_seek(void* fd, off64_t* offset, int from) {
  const off64_t found = lseek((int)(intptr_t)fd, *offset, from);
  if (found >= 0) *offset = found;
  return found < 0 ? -1 : 0;
}
static int cookie_close(void* fd) { return close((int)(intptr_t)fd); }

FILE* fdopen(int fd, const char* mode) {
  if (is_watched(fd) != 2) return REAL(fdopen)(fd, mode);
  const cookie_io_functions_t calls_of = {cookie_read, cookie_write, cookie_seek, cookie_close};
  return fopencookie((void*)(intptr_t)fd, mode, calls_of);
}

/* C++ and C programs tell of something when they flush stdout. */
int fflush(FILE* file) {
  const int result = REAL(fflush)(file);
  if (file == stdout && journal >= 0) tell(TOLD, 0, 1, -1, 0, "", "", "", 0);
  return result;
}

FILE* fopen(const char* path, const char* mode) {
  char room[PATH_MAX];
  if (*below(AT_FDCWD, path, room) && mode[0] != 'r') tell(UNKNOWN, 0, -1, -1, 0, room, "fopen", "", 0);
  return REAL(fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

/* A call that takes names. */
#define ON_NAME(op, flags, path, other, call)                          \
  pthread_mutex_lock(&mutex);                                          \
  enum Kind what;                                                      \
  const int number = next(op, &what);                                  \
  int result = -1;                                                     \
  if ((errno = error_of(what)) == 0) result = (int)(call);             \
  tell(op, result, -1, number, (uint64_t)(flags), path, other, "", 0); \
  pthread_mutex_unlock(&mutex);                                        \
  return result;

int renameat2(int from, const char* a, int to, const char* b, unsigned flags) {
  char room_a[PATH_MAX], room_b[PATH_MAX];
  const char *path = below(from, a, room_a), *other = below(to, b, room_b);
  if (!*path && !*other) return (int)syscall(SYS_renameat2, from, a, to, b, flags);
  for (int fd = 0; fd < MOST_FDS; ++fd) {
    if (names[fd] && strcmp(names[fd], path) == 0) free(names[fd]), names[fd] = NULL; /* no more to be found out */
  }
  ON_NAME(RENAME, flags, path, other, syscall(SYS_renameat2, from, a, to, b, flags))
}
int renameat(int from, const char* a, int to, const char* b) { return renameat2(from, a, to, b, 0); }
int rename(const char* a, const char* b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }

int unlinkat(int folder, const char* name, int flags) {
  char room[PATH_MAX];
  const char* path = below(folder, name, room);
  if (!*path) return (int)syscall(SYS_unlinkat, folder, name, flags);
  const int op = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
  ON_NAME(op, 0, path, "", syscall(SYS_unlinkat, folder, name, flags))
}
int unlink(const char* name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char* name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) {
  if (unlink(name) == 0) return 0;
  return errno == EISDIR ? rmdir(name) : -1;
}

int mkdirat(int folder, const char* name, mode_t mode) {
  char room[PATH_MAX];
  const char* path = below(folder, name, room);
  if (!*path) return (int)syscall(SYS_mkdirat, folder, name, mode);
  ON_NAME(MKDIR, 0, path, "", syscall(SYS_mkdirat, folder, name, mode))
}
int mkdir(const char* name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
