#pragma once

#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// A Jinja template in the environment of Transformers' apply_chat_template: trim_blocks and lstrip_blocks, loop
/// controls, {% generation %}, tojson without escapes of HTML, raise_exception and strftime_now. It renders what Jinja
/// renders, or refuses (docs/security.md says what it refuses).
class Template {
 public:
  /// Throws Error where `source` is no template.
  explicit Template(std::string_view source);

  /// Throws Error as `run` does.
  Rendering render(const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
                   const std::tm& now, Memory& memory) const {
    return run(syntax_, variables, messages, now, memory);
  }

  /// Whether a variable of that name is in it.
  bool reads(const std::string& name) const;

 private:
  Syntax syntax_;
};

}  // namespace mft::jinja
