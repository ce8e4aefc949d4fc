#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/option.h"

namespace mft {

/// The command line of a subcommand: one positional argument, the command's own words, and options of a
/// table (base/option.h) with dashes in their names. Throws Error with the wrong argument.
class Arguments {
 public:
  enum class Word { kValue, kFlag, kRepeated };

  template <typename C>
  Arguments(const std::vector<std::string>& arguments, const std::map<std::string, Word>& words,
            const std::vector<Option<C>>& options)
      : Arguments(arguments, words, names_of(options)) {}
  Arguments(const std::vector<std::string>& arguments, const std::map<std::string, Word>& words,
            const std::vector<std::string>& options, const char* argument = "BUNDLE");

  /// The positional argument.
  const std::string& argument() const { return argument_; }
  /// The value of a word, or "" if it was not given.
  std::string text(const std::string& word) const;
  /// Like `text`, but must not be empty.
  std::string required(const std::string& word) const;
  bool flag(const std::string& word) const { return values_.count(word) != 0; }
  /// All values of a repeatable word.
  std::vector<std::string> all(const std::string& word) const;
  /// The given options, by the table's names.
  const std::map<std::string, std::string>& options() const { return options_; }

 private:
  template <typename C>
  static std::vector<std::string> names_of(const std::vector<Option<C>>& options) {
    std::vector<std::string> names;
    for (const Option<C>& option : options) names.push_back(option.name);
    return names;
  }

  std::string argument_;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, std::string> options_;
};

/// Converts "grad-accum" to "grad_accum".
std::string underscored(std::string name);

}  // namespace mft
