#pragma once

#include <ctime>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/syntax.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// What a template makes of its variables, and where in the text what comes from. `message` numbers the item of the
/// list of messages that the innermost loop over them was at, -1 outside of any.
struct Rendering {
  struct Part {
    size_t begin, end;  // bytes of `text`
    int message;
  };
  std::string text;
  std::vector<Part> parts;  // all of the text, in order
  std::vector<Part> marks;  // what {% generation %} encloses
};

/// Runs a template. `messages` is the list whose items' places `Rendering` tells; `now` is what strftime_now formats.
/// Throws Error where the template fails, refuses its variables, or takes too much time or memory.
Rendering run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
              const std::tm& now, Memory& memory);

}  // namespace mft::jinja
