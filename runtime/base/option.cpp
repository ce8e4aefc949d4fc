#include "runtime/base/option.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <locale>
#include <sstream>

namespace mft {
namespace {

constexpr double kMostBytes = 1e15;

/// Splits "1.5GB" into a finite number and the rest, in any locale. Returns false if there is no number.
bool leading_number(const std::string& text, double& number, std::string& rest) {
  const size_t end = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
  std::istringstream stream(text.substr(0, end));
  stream.imbue(std::locale::classic());
  rest = text.substr(end);
  return stream >> number && stream.peek() == std::char_traits<char>::eof() && std::isfinite(number);
}

}  // namespace

void read_value(const std::string& text, int64_t& value) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || errno != 0) fail("must be an integer");
  value = number;
}

void read_value(const std::string& text, std::optional<int64_t>& value) {
  value.reset();
  if (!text.empty()) read_value(text, value.emplace());
}

void read_value(const std::string& text, double& value) {
  std::string rest;
  if (!leading_number(text, value, rest) || !rest.empty()) fail("must be a number");
}

void read_value(const std::string& text, std::optional<double>& value) {
  value.reset();
  if (!text.empty()) read_value(text, value.emplace());
}

void read_value(const std::string& text, NumberOrAuto& value) {
  value.value.reset();
  double number = 0;
  std::string rest;
  if (text == "auto") return;
  if (!leading_number(text, number, rest) || !rest.empty()) fail("must be a number or auto");
  value.value = number;
}

void read_value(const std::string& text, std::string& value) { value = text; }

void read_value(const std::string& text, bool& value) {
  value = text == "true" || text == "True";
  if (!value && text != "false" && text != "False") fail("must be true or false");
}

void read_value(const std::string& text, uint64_t& value) {
  static const std::map<std::string, double> units = {{"", 1},     {"B", 1},        {"KB", 1e3},     {"MB", 1e6},
                                                      {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  value = 0;
  if (text.empty()) return;
  double number = 0;
  std::string rest;
  const auto unit = leading_number(text, number, rest) ? units.find(rest) : units.end();
  const double bytes = unit == units.end() ? 0 : number * unit->second;
  if (!(bytes >= 1) || bytes > kMostBytes) {
    fail("must be a size such as 512MB, 1.5GB, 512MiB or 1GiB, or a number of bytes");
  }
  value = static_cast<uint64_t>(bytes);
}

void read_value(const std::string& text, std::vector<int64_t>& values) {
  values.clear();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t number = 0;
    try {
      read_value(text.substr(begin, end - begin), number);
    } catch (const Error&) {
      fail("must be integers separated by commas");
    }
    values.push_back(number);
    begin = end + 1;
  }
}

std::string text_of(int64_t value) { return std::to_string(value); }

std::string text_of(const std::optional<int64_t>& value) { return value ? text_of(*value) : ""; }

std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string text_of(const std::optional<double>& value) { return value ? text_of(*value) : ""; }
std::string text_of(const NumberOrAuto& value) { return value.value ? text_of(*value.value) : "auto"; }

std::string text_of(const std::string& value) { return value; }

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(uint64_t bytes) { return bytes == 0 ? "" : std::to_string(bytes); }

std::string text_of(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

}  // namespace mft
