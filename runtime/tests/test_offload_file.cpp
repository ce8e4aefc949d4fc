// What is offloaded comes back, and errors name the folder.

#include "runtime/tests/test_support.h"
#include "runtime/train/offload_file.h"

using namespace mft;
using namespace mft_test;

int main() {
  const TempFolder folder;
  OffloadFile file;
  file = OffloadFile(folder.path(), 100);
  file.write(90, "written ab", 10);
  char back[10];
  file.read(90, back, 10);
  CHECK(std::string(back, 10) == "written ab");
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_ERROR(file.read(95, back, 10), folder.path() + ": cannot read the offload file (it ends early)");
  CHECK_ERROR(file.write(uint64_t{1} << 63, back, 10), folder.path() + ": cannot write the offload file (");
  CHECK_ERROR(OffloadFile(folder / "none", 1), "none: cannot create an offload file in this folder (No such file");
  CHECK_ERROR(OffloadFile(folder.path(), uint64_t{1} << 62), folder.path() + ": cannot reserve 4611686018427 MB");
  return finish();
}
