// Files: that what is no file is refused, and that a failed save leaves what was there.

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "runtime/base/file.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

/// What is no regular file is refused at once: to open a pipe would wait for its writer.
void test_irregular(const TempFolder& folder) {
  const std::string pipe = folder / "pipe";
  CHECK(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_ERROR(file_size(pipe), "pipe: not a regular file");
  CHECK_ERROR(sha256_of_file(pipe, 1), "pipe: not a regular file");
  CHECK_ERROR(MappedFile(pipe), "pipe: not a regular file");
  CHECK_ERROR(file_size("/dev/zero"), "/dev/zero: not a regular file");
}

void test_mapped(const TempFolder& folder) {
  const std::string path = folder / "mapped";
  write_file(path, "hello");
  const MappedFile file(path);
  CHECK(file.size() == 5 && static_cast<char>(file.data()[4]) == 'o' && file.path() == path);
  CHECK(read_text(path, 5) == "hello");
  CHECK_ERROR(read_text(path, 4), "mapped: has 5 bytes; at most 4 are supported");
  write_file(path + "2", "");
  CHECK_ERROR(MappedFile(path + "2"), "mapped2: the file is empty");
  CHECK_ERROR(MappedFile(folder.path()), "not a regular file");
  CHECK_ERROR(MappedFile(folder / "missing"), "missing: No such file");
}

void test_write(const TempFolder& folder) {
  const std::string path = folder / "written";
  write_atomically(path, {{"old", 3}});
  CHECK(read_file(path) == "old");
  write_atomically(path, {{"ne", 2}, {nullptr, 0}, {"w text", 6}});
  CHECK(read_file(path) == "new text");
  CHECK(!file_exists(path + ".partial"));
  write_atomically(path, {});
  CHECK(file_exists(path) && read_file(path).empty());
}

void test_write_nowhere(const TempFolder& folder) {
  CHECK_ERROR(write_atomically(folder / "no/such/folder", {{"x", 1}}), "no/such/folder");
  make_folder(folder / "taken");
  CHECK_ERROR(write_atomically(folder / "taken", {{"x", 1}}), "taken: cannot save the file");
  CHECK(!file_exists(folder / "taken.partial"));
}

/// The disk gets full half way: stood in for by a limit on the size of files.
void test_write_full(const TempFolder& folder) {
  const std::string path = folder / "full";
  write_atomically(path, {{"precious", 8}});
  const std::string big(100000, 'x');
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 50000;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { write_atomically(path, {{"head", 4}, {big.data(), big.size()}}); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(contains(error, "full: cannot save the file"));
  CHECK(read_file(path) == "precious");
  CHECK(!file_exists(path + ".partial"));
  write_atomically(path, {{big.data(), big.size()}});
  CHECK(read_file(path) == big);
}

void test_make_folder(const TempFolder& folder) {
  make_folder(folder / "a/b/c");
  CHECK(file_exists(folder / "a/b/c"));
  make_folder(folder / "a/b/c");
  write_file(folder / "plain", "x");
  CHECK_ERROR(make_folder(folder / "plain/inside"), "plain/inside: cannot create the folder");
}

}  // namespace

int main() {
  const TempFolder folder;
  test_irregular(folder);
  test_mapped(folder);
  test_write(folder);
  test_write_nowhere(folder);
  test_write_full(folder);
  test_make_folder(folder);
  return finish();
}
