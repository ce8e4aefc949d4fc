// SHA-256 against the vectors of FIPS 180-4, in one piece and in many.

#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

std::string digest(const std::string& text, size_t piece) {
  Sha256 sha;
  for (size_t i = 0; i < text.size(); i += piece) sha.update(text.data() + i, std::min(piece, text.size() - i));
  return sha.hex();
}

}  // namespace

int main() {
  const std::pair<std::string, const char*> vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const auto& [text, expected] : vectors) {
    for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000000}}) {
      CHECK(digest(text, piece) == expected);
    }
  }
  const TempFolder folder;
  write_file(folder / "file", std::string(1000000, 'a') + "more");
  CHECK(sha256_of_file(folder / "file", 1000000) == vectors[3].second);
  CHECK(file_size(folder / "file") == 1000004);
  CHECK_ERROR(sha256_of_file(folder / "file", 1000005), "must have at least 1000005 bytes");
  CHECK_ERROR(sha256_of_file(folder / "none", 1), "none: No such file");
  return finish();
}
