#pragma once

#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// Fills in which variables are undefined when a body begins (`unset`). Jinja decides that from the text of a template:
/// a name that a body assigns before it reads it is the body's own from its beginning on, so that loops and macros
/// within it do not see a variable of that name that the template was given. Throws Error for a filter or a test that
/// Jinja does not know, where Jinja says so before it renders, and for variables where it fails to find them.
void find_unset(Syntax& syntax);

}  // namespace mft::jinja
