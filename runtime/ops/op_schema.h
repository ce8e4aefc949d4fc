#pragma once

#include <cstddef>
#include <string_view>

namespace mft {

/// How a registered op is called: `inputs` arguments, then the `outputs` tensors that it writes.
struct OpSchema {
  size_t inputs;
  size_t outputs;
};

/// Of an op by its full name, "mobile_ft::add.out"; null where it is none of ours.
const OpSchema* find_op(std::string_view name);

}  // namespace mft
