// mft-run's command line: what is read, and that every mistake names the option.

#include "runtime/cli/options.h"
#include "runtime/tests/core_test.h"

using namespace mft;
using namespace mft_test;

namespace {

const std::map<std::string, std::string> kKnown = {{"data", ""},   {"steps", "100"},   {"lr", "2e-4"},  {"depths", ""},
                                                   {"budget", ""}, {"resume", "flag"}, {"mode", "full"}};

Options parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bundle");
  return Options(arguments, kKnown);
}

void test_defaults() {
  const Options options = parse({});
  CHECK(options.bundle() == "bundle");
  CHECK(options.integer("steps") == 100);
  CHECK(options.real("lr") == 2e-4);
  CHECK(options.integers("depths").empty());
  CHECK(options.bytes("budget") == 0);
  CHECK(!options.flag("resume"));
  CHECK(options.text("data").empty());
  CHECK_ERROR(options.required("data"), "--data is missing");
}

void test_given() {
  const Options options({"--steps", "5", "--resume", "folder", "--data", "d.tok", "--mode", "b"}, kKnown);
  CHECK(options.bundle() == "folder");
  CHECK(options.integer("steps") == 5);
  CHECK(options.flag("resume"));
  CHECK(options.required("data") == "d.tok");
  CHECK(options.choice("mode", {"a", "b"}) == 1);
  CHECK_ERROR(options.choice("mode", {"a", "c"}), "--mode b: must be one of a, c");
}

void test_structure() {
  CHECK_ERROR(Options({}, kKnown), "the bundle's folder is missing");
  CHECK_ERROR(Options({"--resume"}, kKnown), "the bundle's folder is missing");
  CHECK_ERROR(parse({"second"}), "unexpected argument second");
  CHECK_ERROR(parse({"--stepz", "5"}), "unknown option --stepz");
  CHECK_ERROR(parse({"--"}), "unknown option --");
  CHECK_ERROR(parse({"--steps"}), "--steps needs a value");
}

void test_numbers() {
  const auto integer = [](const char* value) { return parse({"--steps", value}).integer("steps"); };
  CHECK(integer("-3") == -3);
  for (const char* value : {"", "x", "5x", "1.5", "1e3", "99999999999999999999"}) {
    CHECK_ERROR(integer(value), std::string("--steps ") + value + ": must be an integer");
  }
  const auto real = [](const char* value) { return parse({"--lr", value}).real("lr"); };
  CHECK(real("-1.5e-3") == -1.5e-3);
  for (const char* value : {"", "x", "1.5x", "nan", "inf", "1e999"}) {
    CHECK_ERROR(real(value), std::string("--lr ") + value + ": must be a number");
  }
  const auto integers = [](const char* value) { return parse({"--depths", value}).integers("depths"); };
  CHECK(integers("7") == (std::vector<int64_t>{7}));
  CHECK(integers("3,-1,12") == (std::vector<int64_t>{3, -1, 12}));
  for (const char* value : {"x", ",1", "1,,2", "1,2x", "1.5", "1;2"}) {
    CHECK_ERROR(integers(value), std::string("--depths ") + value + ": must be integers with commas between");
  }
}

void test_bytes() {
  const auto bytes = [](const char* value) { return parse({"--budget", value}).bytes("budget"); };
  CHECK(bytes("512MB") == 512000000);
  CHECK(bytes("1GB") == 1000000000);
  CHECK(bytes("1.5GB") == 1500000000);
  CHECK(bytes("4096") == 4096);
  CHECK(bytes("4096B") == 4096);
  // None of these may become 0, which is no limit at all.
  for (const char* value : {"0", "0.5", "0MB", "-5MB", "MB", "5KB", "5mb", "5 MB", "nan", "inf", "infGB", "1e30"}) {
    CHECK_ERROR(bytes(value), std::string("--budget ") + value + ": must be a size such as 512MB or 1GB");
  }
}

}  // namespace

int main() {
  test_defaults();
  test_given();
  test_structure();
  test_numbers();
  test_bytes();
  return finish();
}
