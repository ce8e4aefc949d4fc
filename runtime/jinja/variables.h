#pragma once

#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// Sets the variables that are undefined when a body begins (`unset`). Jinja decides this from the template's text: a
/// name that a body assigns before it reads it is local to the body from its beginning, so loops and macros within it
/// do not see a variable of that name that was passed to the template. Throws Error for unknown filters and tests that
/// Jinja reports before it renders, and for variables that Jinja fails to find.
void find_unset(Syntax& syntax);

}  // namespace mft::jinja
