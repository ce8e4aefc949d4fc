#pragma once

// What C++ tests share: a temporary folder, whole files as strings, token files, and the check of an error.

#include <stdlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/safetensors.h"
#include "runtime/tests/check.h"

namespace mft_test {

/// A new folder that goes away with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mft_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) mft::fail(name, ": cannot be created");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The folder that the environment variable MFT_TEST_BUNDLE names. Null, and says so, where there is none.
inline const char* test_bundle() {
  const char* folder = std::getenv("MFT_TEST_BUNDLE");
  if (folder == nullptr) std::printf("skipped: MFT_TEST_BUNDLE is not set\n");
  return folder;
}

/// What `body` throws: the text of its mft::Error, "" for nothing, and another exception's text after "not an Error".
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const mft::Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not an Error: ") + error.what();
  }
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The four tensors of a token file (docs/reference/bundle_format.md), free to be made wrong.
struct TokenTensors {
  std::vector<int32_t> tokens, targets, positions;
  std::vector<int64_t> offsets{0};

  /// Adds a sequence of one row: each token predicts the next one, and the last predicts `last`.
  void add(const std::vector<int32_t>& row, int32_t last) {
    for (size_t i = 0; i < row.size(); ++i) {
      tokens.push_back(row[i]);
      targets.push_back(i + 1 < row.size() ? row[i + 1] : last);
      positions.push_back(static_cast<int32_t>(i));
    }
    offsets.push_back(static_cast<int64_t>(tokens.size()));
  }

  void write(const std::string& path) const {
    const auto n = [](const auto& values) { return static_cast<int64_t>(values.size()); };
    mft::write_safetensors(path,
                           {{"tokens", "I32", {n(tokens)}, tokens.data()},
                            {"targets", "I32", {n(targets)}, targets.data()},
                            {"positions", "I32", {n(positions)}, positions.data()},
                            {"offsets", "I64", {n(offsets)}, offsets.data()}},
                           {});
  }
};

}  // namespace mft_test

/// `expression` throws mft::Error, and its message holds `part`.
#define CHECK_ERROR(expression, part)                                                                                 \
  do {                                                                                                                \
    const std::string check_error = mft_test::error_of([&] { (void)(expression); });                                  \
    if (check_error.rfind("not an Error", 0) == 0 || check_error.empty() || !mft_test::contains(check_error, part)) { \
      ++mft_test::failures;                                                                                           \
      std::printf("%s:%d: %s: wanted an error with \"%s\", got \"%s\"\n", __FILE__, __LINE__, #expression,            \
                  std::string(part).c_str(), check_error.c_str());                                                    \
    }                                                                                                                 \
  } while (0)
