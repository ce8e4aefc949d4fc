#pragma once

#include <nanobind/nanobind.h>

namespace mft {

/// Adds runtime/text to the Python module `m`.
void register_text(nanobind::module_ m);

}  // namespace mft
