#pragma once

#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// A Jinja template in the environment of Transformers' apply_chat_template: trim_blocks and lstrip_blocks, loop
/// controls, {% generation %}, tojson without HTML escapes, raise_exception and strftime_now. The output is the same as
/// that of Jinja, or the template is rejected (docs/security.md lists the cases).
class Template {
 public:
  /// Throws Error if `source` is not a template.
  explicit Template(std::string_view source);

  /// Throws Error as `run` does.
  Rendering render(const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
                   const std::tm& now, Memory& memory) const {
    return run(syntax_, variables, messages, now, memory);
  }

  /// Whether the template uses a variable of that name.
  bool reads(const std::string& name) const;

 private:
  Syntax syntax_;
};

}  // namespace mft::jinja
