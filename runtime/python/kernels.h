#pragma once

#include <nanobind/nanobind.h>

namespace mft {

/// Adds the kernels to the Python module `m`.
void register_kernels(nanobind::module_ m);

}  // namespace mft
