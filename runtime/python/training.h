#pragma once

#include <nanobind/nanobind.h>

namespace mft {

/// Adds TokenFile, Trainer and run_training to the Python module `m`.
void register_training(nanobind::module_ m);

}  // namespace mft
