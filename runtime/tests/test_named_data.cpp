// The index of a weights.ptd, from the bundle in the environment variable MFT_TEST_BUNDLE: read as it is, and damaged
// at every byte.

#include <nlohmann/json.hpp>

#include "runtime/base/sha256.h"
#include "runtime/bundle/named_data.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

std::map<std::string, FilePlace> places_of(const std::string& path, uint64_t index_size) {
  const OpenFile file(path);
  return read_named_data(file, file.beginning(index_size));
}

void test_whole(const std::string& path, const nlohmann::json& weights) {
  const std::string content = read_file(path);
  const auto places = places_of(path, weights.at("index_size"));
  CHECK(places.size() == weights.at("sha256").size());
  for (const auto& [name, place] : places) {
    Sha256 sha;
    sha.update(content.data() + place.offset, place.bytes);
    CHECK(weights.at("sha256").at(name) == sha.hex());
  }
}

void test_damaged(const std::string& index, uint64_t size) {
  const TempFolder folder;
  const std::string path = folder / "weights.ptd";
  int refused = 0, read = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    std::string damaged = index;
    damaged[i] = i % 2 == 0 ? '\xff' : '\x7f';
    write_file(path, damaged);
    std::filesystem::resize_file(path, size);
    const std::string error = error_of([&] {
      for (const auto& [name, place] : places_of(path, index.size())) {
        CHECK(place.offset >= index.size() && place.offset <= size && place.bytes <= size - place.offset);
      }
      ++read;
    });
    refused += !error.empty();
    CHECK(error.empty() || error.rfind(path + ": ", 0) == 0);
  }
  CHECK(refused > 500 && read > 500);
}

void test_errors(const std::string& index) {
  const TempFolder folder;
  const std::string path = folder / "weights.ptd";
  write_file(path, "PK" + index.substr(2));
  CHECK_ERROR(places_of(path, index.size()), "outside of the file");
  write_file(path, index.substr(0, 4) + "FT99" + index.substr(8));
  CHECK_ERROR(places_of(path, index.size()), "not an ExecuTorch named-data file");
  write_file(path, index);  // without the tensors
  CHECK_ERROR(places_of(path, index.size()), "outside of the file");
  CHECK_ERROR(places_of(path, 3), "an offset points outside of the file");
  CHECK_ERROR(places_of(path, index.size() + 1), "weights.ptd: must have at least ");
  CHECK_ERROR(places_of(path, 0), "outside of the file");
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const std::string path = std::string(bundle) + "/weights.ptd";
  const nlohmann::json weights = nlohmann::json::parse(read_file(std::string(bundle) + "/bundle.json")).at("weights");
  const std::string content = read_file(path);
  const std::string index = content.substr(0, weights.at("index_size").get<size_t>());
  test_whole(path, weights);
  test_damaged(index, content.size());
  test_errors(index);
  return finish();
}
