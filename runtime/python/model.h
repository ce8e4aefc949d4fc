#pragma once

#include <nanobind/nanobind.h>

namespace mft {

/// Adds Model, Generator and evaluation to the Python module `m`.
void register_model(nanobind::module_ m);

}  // namespace mft
