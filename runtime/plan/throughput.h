#pragma once

#include <string>

#include "runtime/bundle/bundle.h"
#include "runtime/config/train_config.h"

namespace mft {

/// What this machine does in a second.
struct Throughput {
  double linear = 0;     // operations, two a multiply-add, of linear layers with LoRA, forward and backward alike
  double attention = 0;  // operations of exact attention
  double decoded = 0;    // packed weights made ready for a product
  double elements = 0;   // numbers that an elementwise op makes
  double read = 0;       // bytes of weights that come from storage
};

/// This machine's, for a run of `config` from this bundle: measured within some tenths of a second, in some MB that
/// are given back, and remembered for a day. Weights that lie nowhere yet count as read from a phone's flash.
Throughput measured_throughput(const TrainConfig& config, const Bundle& bundle);

/// Another machine's: five whole numbers above zero in this order, with commas between. Throws Error.
void read_value(const std::string& text, Throughput& throughput);

}  // namespace mft
