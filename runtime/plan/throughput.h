#pragma once

#include <string>

#include "runtime/bundle/bundle.h"
#include "runtime/config/train_config.h"

namespace mft {

/// The throughput of a machine, per second.
struct Throughput {
  double linear = 0;     // operations (2 per multiply-add) of linear layers with LoRA, the same in forward and backward
  double attention = 0;  // operations of exact attention
  double decoded = 0;    // packed weights decoded for a product
  double elements = 0;   // values computed by an elementwise op
  double read = 0;       // bytes of weights read from storage
};

/// Returns this machine's throughput for a run of `config` with this bundle. The measurement takes some tenths of a
/// second and some MB, which are freed, and is cached for a day. If the weights are not on a disk, the read speed of a
/// phone's flash is used.
Throughput measured_throughput(const TrainConfig& config, const Bundle& bundle);

/// Parses another machine's throughput: five positive integers in this order, separated by commas. Throws Error.
void read_value(const std::string& text, Throughput& throughput);

}  // namespace mft
