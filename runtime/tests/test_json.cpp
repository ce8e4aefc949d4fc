// JSON of strangers: limits of depth and size, whole numbers, and errors that stay one line.

#include "runtime/base/json.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;
using Json = nlohmann::json;

namespace {

void test_limits() {
  const auto nested = [](int levels) { return std::string(size_t(levels), '[') + std::string(size_t(levels), ']'); };
  CHECK(parse_json<Json>(nested(kMostJsonLevels), "file") == Json::parse(nested(kMostJsonLevels)));
  CHECK_ERROR(parse_json<Json>(nested(kMostJsonLevels + 1), "file"), "file (nested deeper than 64 levels)");
  CHECK_ERROR(parse_json<Json>(nested(5000000), "file"), "file (nested deeper than 64 levels)");
  CHECK_ERROR(parse_json<Json>(std::string(5000000, '['), "file"), "file (nested deeper than 64 levels)");
  std::string many = "[0";
  for (int i = 0; i < kMostJsonValues; ++i) many += ",0";
  CHECK_ERROR(parse_json<Json>(many + "]", "file"), "file (more than 4000000 values)");
  std::string objects = "[[{}]";
  for (int64_t i = 0; i < kMostJsonObjects; ++i) objects += ",[{}]";
  CHECK_ERROR(parse_json<Json>(objects + "]", "file"), "file (more than 100000 objects)");
  CHECK_ERROR(parse_json<Json>(std::string(kMostJsonBytes + 1, ' '), "file"), "at most 67108864 are supported");
  CHECK_ERROR(parse_json<Json>("{", "file"), "file ([json.exception.parse_error");
}

void test_integers() {
  const Json object = Json::parse(
      R"({"small": -3, "large": 9223372036854775807, "larger": 9223372036854775808, "huge": 1e300, "half": 0.5,
          "text": "1", "none": null})");
  CHECK(integer(object, "small", -3, 0) == -3);
  CHECK(integer(object, "large", 0, INT64_MAX) == INT64_MAX);
  CHECK_ERROR(integer(object, "small", 0, 5), "small is -3; must be an integer from 0 to 5");
  CHECK_ERROR(integer(object, "larger", INT64_MIN, INT64_MAX), "larger is 9223372036854775808; must be");
  CHECK_ERROR(integer(object, "huge", INT64_MIN, INT64_MAX), "huge is 1e+300; must be");
  CHECK_ERROR(integer(object, "half", 0, 1), "half is 0.5; must be");
  CHECK_ERROR(integer(object, "text", 0, 1), "text is \"1\"; must be");
  CHECK_ERROR(integer(object, "none", 0, 1), "none is null; must be");
}

void test_one_line() {
  CHECK(one_line("a.txt: überall 🙂 \"x\"") == "a.txt: überall 🙂 \"x\"");
  CHECK(one_line("two\nlines\r\t\x1b[31m\x7f") == "two\\x0alines\\x0d\\x09\\x1b[31m\\x7f");
  CHECK(one_line("\xff\xc3(\xe2\x82\xed\xa0\x80\xc0\xaf") == "\\xff\\xc3(\\xe2\\x82\\xed\\xa0\\x80\\xc0\\xaf");
  CHECK(one_line("\xe2\x80\xa8\xe2\x80\xae") == "\\xe2\\x80\\xa8\\xe2\\x80\\xae");  // line separator, right to left
  CHECK(one_line(std::string(1000, 'x')) == std::string(1000, 'x'));
  for (const char* part : {"x", "\n", "é", "🙂"}) {
    std::string text;
    while (text.size() < 100000) text += part;
    const std::string line = one_line(text);
    CHECK(line.size() <= 1000 && line.size() > 940 && contains(line, "..."));
    CHECK(one_line(line) == line);
  }
  const std::string with_end = one_line(std::string(5000, 'x') + "; must be 0");
  CHECK(with_end.substr(with_end.size() - 11) == "; must be 0");
  for (size_t n = 960; n < 1010; ++n) {
    const std::string line = one_line(std::string(n, 'x') + "\xff\xff\xff");
    CHECK(line.size() <= 1000 && one_line(line) == line);
  }
  CHECK_ERROR(fail("a\nb"), "a\\x0ab");
}

}  // namespace

int main() {
  test_limits();
  test_integers();
  test_one_line();
  return finish();
}
