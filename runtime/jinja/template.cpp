#include "runtime/jinja/template.h"

#include <algorithm>

#include "runtime/jinja/parser.h"

namespace mft::jinja {

Template::Template(std::string_view source) : syntax_(parse(source)) {}

bool Template::reads(const std::string& name) const {
  return std::find(syntax_.names.begin(), syntax_.names.end(), name) != syntax_.names.end();
}

}  // namespace mft::jinja
