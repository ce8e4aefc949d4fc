// SafeTensors: what is written is read back, and no damaged or hostile file gets further than an Error.

#include <cstring>
#include <random>

#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

/// A file with this header and `body` bytes behind it.
std::string with_header(const std::string& header, size_t body) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(body, 'x');
}

std::string tensor_header(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

/// Two tensors and metadata, 8-byte aligned as written.
std::string small_file(const TempFolder& folder) {
  const std::string path = folder / "small.safetensors";
  const float floats[] = {1.5f, -2.f, 3.25f, 4.f, 5.f, 6.f};
  const int64_t integers[] = {-1, int64_t{1} << 40};
  write_safetensors(path, {{"a", "F32", {2, 3}, floats}, {"b", "I64", {2}, integers}}, {{"who", "me"}});
  return path;
}

void test_round_trip(const TempFolder& folder) {
  const std::string path = small_file(folder);
  const SafeTensors file(path);
  CHECK(file.path() == path);
  CHECK(file.tensors().size() == 2);
  CHECK(file.metadata().size() == 1 && file.metadata().at("who") == "me");
  const auto& a = file.get("a", "F32");
  CHECK(a.shape == (std::vector<int64_t>{2, 3}) && a.bytes == 24);
  float third;
  std::memcpy(&third, a.data + 8, sizeof(third));
  CHECK(third == 3.25f);
  const auto& b = file.get("b", "I64");
  int64_t second;
  std::memcpy(&second, b.data + 8, sizeof(second));
  CHECK(b.bytes == 16 && second == int64_t{1} << 40);
  CHECK(reinterpret_cast<uintptr_t>(b.data) % 8 == 0);
  CHECK(file.has("a") && !file.has("c"));
  CHECK_ERROR(file.get("c", "F32"), "small.safetensors: tensor c is missing");
  CHECK_ERROR(file.get("a", "I64"), "tensor a is F32; it must be I64");
}

void test_empty_tensor(const TempFolder& folder) {
  const std::string path = folder / "empty_tensor";
  write_safetensors(path, {{"nothing", "F32", {0, 4}, nullptr}}, {});
  CHECK(SafeTensors(path).get("nothing", "F32").bytes == 0);
}

void test_truncated(const TempFolder& folder) {
  const std::string whole = read_file(small_file(folder));
  const std::string path = folder / "truncated";
  for (size_t size = 0; size < whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    CHECK_ERROR(SafeTensors(path), "truncated: ");
  }
  CHECK_ERROR(SafeTensors(folder / "missing"), "missing: ");
  CHECK_ERROR(SafeTensors(folder.path()), "not a regular file");
}

void test_header(const TempFolder& folder) {
  const std::string path = folder / "header";
  const auto refuses = [&](const std::string& bytes, const char* part) {
    write_file(path, bytes);
    CHECK_ERROR(SafeTensors(path), part);
  };
  std::string huge = with_header("{}", 8);
  for (const uint64_t size : {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63, uint64_t{11}}) {
    std::memcpy(huge.data(), &size, 8);
    refuses(huge, "not a safetensors file, or truncated");
  }
  refuses(with_header("", 8), "not a safetensors file");
  refuses(with_header("{", 8), "not a safetensors file");
  refuses(with_header("[1, 2]", 8), "not a safetensors file");
  refuses(with_header("7", 8), "not a safetensors file");
  refuses(with_header("{\"\xff\":1}", 8), "not a safetensors file");
  refuses(with_header(R"({"t":3})", 8), "not a safetensors file");
  refuses(with_header(R"({"t":{"dtype":"F32"}})", 8), "not a safetensors file");
  refuses(with_header(R"({"__metadata__":{"a":1}})", 8), "not a safetensors file");
  refuses(with_header(std::string(100000, '['), 8), "not a safetensors file");
  refuses(with_header(std::string(100000, '[') + std::string(100000, ']'), 8), "not a safetensors file");
}

void test_tensor_entry(const TempFolder& folder) {
  const std::string path = folder / "entry";
  const auto refuses = [&](const char* dtype, const char* shape, const char* offsets, const char* part) {
    write_file(path, with_header(tensor_header(dtype, shape, offsets), 16));
    CHECK_ERROR(SafeTensors(path), part);
  };
  const char* outside = "tensor t is outside of the file";
  refuses("\"F32\"", "[4]", "[4,20]", outside);
  refuses("\"F32\"", "[4]", "[16,0]", outside);
  refuses("\"F32\"", "[4]", "[0,12]", outside);
  refuses("\"F32\"", "[4]", "[0]", outside);
  refuses("\"F32\"", "[4]", "[0,8,16]", outside);
  refuses("\"F32\"", "[4]", "[-16,0]", outside);
  refuses("\"F32\"", "[4]", "[0,18446744073709551615]", outside);
  refuses("\"F32\"", "[4]", "[18446744073709551600,18446744073709551615]", outside);
  refuses("\"F32\"", "[-4]", "[0,16]", outside);
  refuses("\"F32\"", "[-2,-2]", "[0,16]", outside);
  refuses("\"F32\"", "[4294967296,4294967296]", "[0,0]", outside);     // 2^64 wraps to 0
  refuses("\"F32\"", "[4611686018427387905,4]", "[0,16]", outside);    // 2^64 + 4 wraps to 4
  refuses("\"F32\"", "[2,9223372036854775807,2]", "[0,16]", outside);  // wraps to -4
  refuses("\"F32\"", "\"4\"", "[0,16]", "not a safetensors file");
  refuses("\"F32\"", "[[4]]", "[0,16]", "not a safetensors file");
  refuses("\"F32\"", "[4]", "{}", "not a safetensors file");
  refuses("\"F99\"", "[4]", "[0,16]", "unsupported dtype F99");
  refuses("\"\"", "[4]", "[0,16]", "unsupported dtype");
  refuses("5", "[4]", "[0,16]", "not a safetensors file");

  write_file(path, with_header(tensor_header("\"F32\"", "[4]", "[0,16]"), 16));
  CHECK(SafeTensors(path).get("t", "F32").bytes == 16);
}

/// Any change of any byte gives an Error or a file whose tensors lie inside it.
void test_random_damage(const TempFolder& folder) {
  const std::string whole = read_file(small_file(folder));
  const std::string path = folder / "damaged";
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int changes = 1 + i % 3; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(path, bytes);
    const std::string error = error_of([&] {
      const SafeTensors file(path);
      unsigned sum = 0;
      for (const auto& [name, view] : file.tensors()) {
        for (size_t b = 0; b < view.bytes; ++b) sum += static_cast<unsigned>(view.data[b]);
      }
      CHECK(sum < 255 * whole.size());
    });
    CHECK(error.rfind("not an Error", 0) != 0);
  }
}

}  // namespace

int main() {
  const TempFolder folder;
  test_round_trip(folder);
  test_empty_tensor(folder);
  test_truncated(folder);
  test_header(folder);
  test_tensor_entry(folder);
  test_random_damage(folder);
  return finish();
}
