// What is spilled comes back, and errors name the folder.

#include "runtime/core/spill_file.h"
#include "runtime/tests/core_test.h"

using namespace mft;
using namespace mft_test;

int main() {
  const TempFolder folder;
  SpillFile file;
  file = SpillFile(folder.path(), 100);
  file.write(90, "spilled ab", 10);
  char back[10];
  file.read(90, back, 10);
  CHECK(std::string(back, 10) == "spilled ab");
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_ERROR(file.read(95, back, 10), folder.path() + ": the spill file cannot be read (it is short)");
  CHECK_ERROR(file.write(uint64_t{1} << 63, back, 10), folder.path() + ": the spill file cannot be written (");
  CHECK_ERROR(SpillFile(folder / "none", 1), "none: no spill file can be made there (No such file");
  CHECK_ERROR(SpillFile(folder.path(), uint64_t{1} << 62), folder.path() + ": 4611686018427 MB for spilled");
  return finish();
}
