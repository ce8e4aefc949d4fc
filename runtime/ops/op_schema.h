#pragma once

#include <cstddef>
#include <string_view>

namespace mft {

/// How a registered op is called: `inputs` arguments, then the `outputs` tensors that it writes. Programs of older
/// versions leave out the last `added` inputs, which then have their defaults.
struct OpSchema {
  size_t inputs;
  size_t outputs;
  size_t added = 0;

  /// How many inputs a call with this many arguments has; 0 if it does not fit. The last argument is the op's result:
  /// its output again, or a list of its outputs.
  size_t inputs_of(size_t arguments) const {
    const size_t most = inputs + outputs + 1;
    return arguments <= most && arguments + added >= most ? arguments - outputs - 1 : 0;
  }
};

/// Of an op by its full name, "mobile_ft::add.out"; null where it is none of ours.
const OpSchema* find_op(std::string_view name);

}  // namespace mft
