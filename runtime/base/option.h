#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/names.h"

namespace mft {

enum class OptionType { kInteger, kNumber, kText, kChoice, kSize, kIntegers, kFlag };
inline std::vector<const char*> names(OptionType) {
  return {"integer", "number", "text", "choice", "size", "integers", "flag"};
}

/// A number, or "auto" (no value): one that a run chooses itself.
struct NumberOrAuto {
  std::optional<double> value;
};

/// Whether an option affects a step's memory and time, and thus the plan, or only the run around the steps.
enum class OptionGroup { kStep, kRun };
inline std::vector<const char*> names(OptionGroup) { return {"step", "run"}; }

/// An option of a configuration `C`. All front ends show and set it by name, as text.
template <typename C>
struct Option {
  std::string name;  // "grad_accum"; on a command line "--grad-accum"
  OptionType type;
  std::vector<std::string> choices;  // values of a choice
  std::string metavar;
  std::string help;  // empty: not listed in --help
  OptionGroup group;
  bool decides_result;  // a resumed run must have the same value
  std::function<void(C&, const std::string&)> set;
  std::function<std::string(const C&)> get;
};

// Conversion of values to and from text. Reading throws Error with the valid values.
void read_value(const std::string& text, int64_t& value);
/// Empty: none.
void read_value(const std::string& text, std::optional<int64_t>& value);
void read_value(const std::string& text, double& value);
void read_value(const std::string& text, std::optional<double>& value);
void read_value(const std::string& text, NumberOrAuto& value);
void read_value(const std::string& text, std::string& value);
/// "true" or "false", or Python's "True" and "False".
void read_value(const std::string& text, bool& value);
/// Bytes: "512MB", "1.5GB" (powers of ten), "512MiB", "1GiB" (powers of two) or a plain number; empty: 0.
void read_value(const std::string& text, uint64_t& value);
/// Integers separated by commas; empty: none.
void read_value(const std::string& text, std::vector<int64_t>& values);
template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
void read_value(const std::string& text, E& value) {
  value = value_of<E>(text);
}

std::string text_of(int64_t value);
std::string text_of(const std::optional<int64_t>& value);  // empty for none
/// The shortest text that reads back as the same number.
std::string text_of(double value);
std::string text_of(const std::optional<double>& value);
std::string text_of(const NumberOrAuto& value);
std::string text_of(const std::string& value);
std::string text_of(bool value);
std::string text_of(uint64_t bytes);  // empty for 0
std::string text_of(const std::vector<int64_t>& values);
template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
std::string text_of(E value) {
  return name_of(value);
}

template <typename C>
const Option<C>& find_option(const std::vector<Option<C>>& options, const std::string& name) {
  for (const Option<C>& option : options) {
    if (option.name == name) return option;
  }
  fail("unknown option ", name);
}

/// Sets one option. Throws Error, with the option and the value.
template <typename C>
void set_option(const std::vector<Option<C>>& options, C& config, const std::string& name, const std::string& text) {
  const Option<C>& option = find_option(options, name);
  try {
    option.set(config, text);
  } catch (const Error& error) {
    fail(name, " ", text, ": ", error.what());
  }
}

/// Returns an option that sets the member `field(config)`. Its type defines how the text is read.
template <typename C, typename Field>
Option<C> option(const char* name, Field field, OptionGroup group, bool decides_result, const char* help) {
  using T = std::remove_reference_t<decltype(field(std::declval<C&>()))>;
  Option<C> made{name, OptionType::kText, {}, "TEXT", help, group, decides_result, {}, {}};
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>) {
    made.type = OptionType::kInteger;
    made.metavar = "N";
  } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) {
    made.type = OptionType::kNumber;
    made.metavar = "X";
  } else if constexpr (std::is_same_v<T, NumberOrAuto>) {
    made.type = OptionType::kNumber;
    made.metavar = "X|auto";
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    made.type = OptionType::kSize;
    made.metavar = "SIZE";
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    made.type = OptionType::kIntegers;
    made.metavar = "N,N";
  } else if constexpr (std::is_same_v<T, bool>) {
    made.type = OptionType::kFlag;
    made.metavar = "true|false";
  } else if constexpr (std::is_enum_v<T>) {
    made.type = OptionType::kChoice;
    made.metavar.clear();
    for (const char* choice : names(T{})) made.choices.push_back(choice);
  }
  made.set = [field](C& config, const std::string& text) { read_value(text, field(config)); };
  made.get = [field](const C& config) { return text_of(field(const_cast<C&>(config))); };
  return made;
}

}  // namespace mft
