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

/// The output of a template, and the origin of its parts. `message` is the number of the message that the innermost
/// loop over the messages had reached, or -1 outside of such loops.
struct Rendering {
  struct Part {
    size_t begin, end;  // bytes of `text`
    int message;
  };
  std::string text;
  std::vector<Part> parts;  // cover the whole text, in order
  std::vector<Part> marks;  // contents of {% generation %} blocks
};

/// Runs a template. `Rendering` has the places of the items of `messages`. strftime_now formats `now`. Throws Error if
/// the template fails, rejects its variables, or takes too much time or memory.
Rendering run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
              const std::tm& now, Memory& memory);

}  // namespace mft::jinja
