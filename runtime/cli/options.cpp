#include "runtime/cli/options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "runtime/core/error.h"

namespace mft {

Options::Options(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& known) {
  for (const auto& [name, value] : known) values_[name] = value == "flag" ? "false" : value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      if (!bundle_.empty()) fail("unexpected argument ", argument);
      bundle_ = argument;
      continue;
    }
    const std::string name = argument.substr(2);
    const auto found = known.find(name);
    if (found == known.end()) fail("unknown option ", argument);
    if (found->second == "flag") {
      values_[name] = "true";
    } else if (++i < arguments.size()) {
      values_[name] = arguments[i];
    } else {
      fail(argument, " needs a value");
    }
  }
  if (bundle_.empty()) fail("the bundle's folder is missing");
}

const std::string& Options::required(const std::string& name) const {
  if (values_.at(name).empty()) fail("--", name, " is missing");
  return values_.at(name);
}

int64_t Options::integer(const std::string& name) const {
  const std::string& value = values_.at(name);
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value.c_str(), &end, 10);
  if (value.empty() || *end != 0 || errno != 0) fail("--", name, " ", value, ": must be an integer");
  return number;
}

double Options::real(const std::string& name) const {
  const std::string& value = values_.at(name);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != 0 || !std::isfinite(number)) fail("--", name, " ", value, ": must be a number");
  return number;
}

std::vector<int64_t> Options::integers(const std::string& name) const {
  std::vector<int64_t> numbers;
  const std::string& value = values_.at(name);
  for (size_t begin = 0; begin < value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string item = value.substr(begin, end - begin);
    char* rest = nullptr;
    errno = 0;
    const long long number = std::strtoll(item.c_str(), &rest, 10);
    if (item.empty() || *rest != 0 || errno != 0)
      fail("--", name, " ", value, ": must be integers with commas between");
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

uint64_t Options::bytes(const std::string& name) const {
  const std::string& value = values_.at(name);
  if (value.empty()) return 0;
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "MB" ? 1e6 : unit == "GB" ? 1e9 : unit.empty() || unit == "B" ? 1 : 0;
  if (end == value.c_str() || scale == 0 || !(number * scale >= 1) || number * scale > 1e15) {
    fail("--", name, " ", value, ": must be a size such as 512MB or 1GB");
  }
  return static_cast<uint64_t>(number * scale);
}

size_t Options::choice(const std::string& name, const std::vector<std::string>& choices) const {
  const std::string& value = values_.at(name);
  std::string all;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == value) return i;
    all += (i ? ", " : "") + choices[i];
  }
  fail("--", name, " ", value, ": must be one of ", all);
}

}  // namespace mft
