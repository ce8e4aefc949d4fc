#include "runtime/formats/format.h"

namespace mft {
namespace {

constexpr int64_t kPlainGroup = 32;
struct Group {
  std::string_view suffix;
  int64_t columns;
};
constexpr Group kGroups[] = {{"", kPlainGroup}, {"_g16", 16}, {"_g64", 64}, {"_g128", 128}};

constexpr bool has_group(const CodeTraits& traits, const Group& group) {
  return traits.levels != Levels::kFloat16 || group.columns == kPlainGroup;
}

}  // namespace

bool parse_format(std::string_view name, Format* format) {
  for (const CodeTraits& traits : kCodes) {
    if (name.substr(0, traits.name.size()) != traits.name) continue;
    for (const Group& group : kGroups) {
      if (!has_group(traits, group) || name.substr(traits.name.size()) != group.suffix) continue;
      *format = {traits.code, group.columns};
      return true;
    }
  }
  return false;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const CodeTraits& traits : kCodes) {
    for (const Group& group : kGroups) {
      if (has_group(traits, group)) names.push_back(std::string(traits.name).append(group.suffix));
    }
  }
  return names;
}

}  // namespace mft
