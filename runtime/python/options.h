#pragma once

#include <nanobind/nanobind.h>

namespace mft {

/// Adds the tables of options and the configurations made from them to the Python module `m`.
void register_options(nanobind::module_ m);

}  // namespace mft
