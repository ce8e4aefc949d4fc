#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mft {

/// Command line of one subcommand: `--name value` pairs, `--flag`s, and one positional argument, the bundle. Throws
/// Error naming the option and what would be right.
class Options {
 public:
  /// `known` maps an option's name to its default; a default of "flag" makes it one without a value.
  Options(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& known);

  const std::string& bundle() const { return bundle_; }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  /// Like `text`, but must not be empty.
  const std::string& required(const std::string& name) const;
  bool flag(const std::string& name) const { return values_.at(name) == "true"; }
  int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  /// Comma-separated integers; none where empty.
  std::vector<int64_t> integers(const std::string& name) const;
  /// "512MB", "1GB" or plain bytes, as bytes. MB and GB are powers of ten.
  uint64_t bytes(const std::string& name) const;
  /// Index of the value in `choices`.
  size_t choice(const std::string& name, const std::vector<std::string>& choices) const;

 private:
  std::string bundle_;
  std::map<std::string, std::string> values_;
};

}  // namespace mft
