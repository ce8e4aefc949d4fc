#include "runtime/bundle/program_check.h"

#include <optional>

#include "runtime/base/error.h"
#include "runtime/bundle/flatbuffer.h"
#include "runtime/ops/op_schema.h"

namespace mft {
namespace {

constexpr uint32_t kMostMethods = 1000, kMostValues = 10000, kMostCalls = 10000;
constexpr uint64_t kMostTensorBytes = uint64_t{1} << 40;
constexpr uint64_t kArenaAlignment = 16;

// Fields and numbers of schema/program.fbs.
enum ProgramField {
  kVersion,
  kPlans,
  kConstants,
  kDelegateData,
  kSegments,
  kConstantSegment,
  kMutableData,
  kNamedData
};
enum SubsegmentField { kSegmentIndex, kOffsets };
enum PlanField { kName, kContainer, kValues, kInputs, kOutputs, kChains, kOperators, kDelegates, kBuffers };
enum ChainField { kChainInputs, kChainOutputs, kInstructions };
enum InstructionField { kInstructionType, kInstruction };
enum KernelCallField { kOperator, kArguments };
enum OperatorField { kOperatorName, kOverload };
enum ValueField { kValueType, kValue };
enum TensorField {
  kScalarType,
  kStorageOffset,
  kSizes,
  kDimOrder,
  kRequiresGrad,
  kDataBuffer,
  kAllocation,
  kLayout,
  kDynamism,
  kExtra
};
enum AllocationField { kMemory, kOffsetLow, kOffsetHigh };
enum ValueType : uint8_t { kNull = 1, kInt, kBool, kDouble, kTensor, kString, kTensorList = 10 };
constexpr uint8_t kKernelCall = 1;
constexpr int8_t kByteType = 0, kLongType = 4, kFloatType = 6;
constexpr int8_t kMostDynamism = 1;  // a shape with an upper bound

/// A value of a method, and its state during the check.
struct Value {
  uint8_t type = 0;
  int8_t scalar = 0;
  bool in_arena = false;
  bool input = false;
  bool output = false;
  bool has_data = false;  // an input, or written by an op
  bool tensor() const { return type == kTensor; }
};

class MethodCheck {
 public:
  MethodCheck(const FlatTable& plan, std::string where) : plan_(plan), where_(std::move(where)) {}

  std::vector<ArenaTensor> run() {
    if (plan_.vector(kDelegates).size() > 0) wrong("has a delegate");
    const FlatVector buffers = plan_.vector(kBuffers, sizeof(int64_t));
    if (buffers.size() != 2 || buffers.number<int64_t>(1) < 0) wrong("must have one arena");
    arena_bytes_ = static_cast<uint64_t>(buffers.number<int64_t>(1));
    read_values();
    read_inputs();
    read_outputs();
    for (const Value& value : values_) {
      if (value.tensor() && value.in_arena == (value.input || value.output)) {
        wrong("has a tensor without arena allocation, or an input or output in the arena");
      }
      if (value.tensor() && value.scalar == kLongType && !value.input) wrong("computes integer tensors");
    }
    read_calls();
    for (const Value& value : values_) {
      if (value.output && !value.has_data) wrong("does not write an output");
    }
    return std::move(arena_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void wrong(const Args&... args) const {
    fail(where_, " ", args..., "; the file is damaged; export the bundle again");
  }

  void read_values() {
    const FlatVector values = plan_.vector(kValues);
    if (values.size() > kMostValues) wrong("has ", values.size(), " values");
    for (uint32_t i = 0; i < values.size(); ++i) {
      const FlatTable entry = plan_.item(values, i);
      Value value;
      value.type = entry.number<uint8_t>(kValueType);
      const std::optional<FlatTable> content = entry.table(kValue);
      if (!content && value.type != kNull) wrong("has a value without content");
      switch (value.type) {
        case kNull:
        case kInt:
        case kBool:
        case kDouble:
          break;
        case kString:
          if (!content->has(0)) wrong("has a string without content");
          break;
        case kTensor:
          read_tensor(*content, value);
          break;
        case kTensorList: {  // the result of an op with several outputs; ExecuTorch reads the tensors before it
          const FlatVector items = content->vector(0);
          for (uint32_t j = 0; j < items.size(); ++j) {
            if (items.number<uint32_t>(j) >= i || !values_[items.number<uint32_t>(j)].tensor()) {
              wrong("has a list of values that are not tensors");
            }
          }
          break;
        }
        default:
          wrong("has a value of type ", int{value.type});
      }
      values_.push_back(value);
    }
  }

  void read_tensor(const FlatTable& tensor, Value& value) {
    value.scalar = tensor.number<int8_t>(kScalarType);
    const uint64_t item = value.scalar == kByteType ? 1 : value.scalar == kLongType ? 8 : 4;
    if (item == 4 && value.scalar != kFloatType) wrong("has a tensor of type ", int{value.scalar});
    if (tensor.number<int32_t>(kStorageOffset) != 0 || tensor.number<uint32_t>(kDataBuffer) != 0 ||
        tensor.has(kExtra)) {
      wrong("has a tensor with constant data");
    }
    const int8_t dynamism = tensor.number<int8_t>(kDynamism);
    if (dynamism < 0 || dynamism > kMostDynamism) wrong("has a tensor without bounds");
    const FlatVector sizes = tensor.vector(kSizes), order = tensor.vector(kDimOrder, 1);
    if (sizes.size() == 0 || sizes.size() > 4 || order.size() != sizes.size())
      wrong("has a tensor with an unsupported shape");
    uint64_t bytes = item;
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      const int32_t n = sizes.number<int32_t>(d);
      if (n <= 0 || order.number<uint8_t>(d) != d) wrong("has a tensor with an unsupported shape");
      if (bytes > kMostTensorBytes / static_cast<uint64_t>(n)) wrong("has a tensor that is too large");
      bytes *= static_cast<uint64_t>(n);
    }
    const std::optional<FlatTable> place = tensor.table(kAllocation);
    if (!place) return;
    value.in_arena = true;
    const uint64_t offset = place->number<uint32_t>(kOffsetLow) | uint64_t{place->number<uint32_t>(kOffsetHigh)} << 32;
    if (place->number<uint32_t>(kMemory) != 1 || offset > arena_bytes_ || bytes > arena_bytes_ - offset ||
        offset % kArenaAlignment != 0) {
      wrong("has a tensor outside of the arena");
    }
    arena_.push_back({offset, bytes});
  }

  /// Returns the value at entry `i` of a list of indices.
  Value& value_at(const FlatVector& indices, uint32_t i) {
    const uint32_t index = indices.number<uint32_t>(i);
    if (index >= values_.size()) wrong("refers to value ", index, " of ", values_.size());
    return values_[index];
  }

  void read_inputs() {
    const FlatVector inputs = plan_.vector(kInputs);
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      Value& value = value_at(inputs, i);
      if (!value.tensor() || value.input) wrong("has an input that is not a tensor or is repeated");
      value.input = value.has_data = true;
    }
  }

  void read_outputs() {
    const FlatVector outputs = plan_.vector(kOutputs);
    for (uint32_t i = 0; i < outputs.size(); ++i) {
      Value& value = value_at(outputs, i);
      if (!value.tensor() || value.input || value.output) wrong("has an output that is not a separate tensor");
      value.output = true;
    }
  }

  void read_calls() {
    const FlatVector operators = plan_.vector(kOperators), chains = plan_.vector(kChains);
    std::vector<const OpSchema*> ops;
    if (operators.size() > kMostCalls) wrong("lists ", operators.size(), " ops");
    for (uint32_t i = 0; i < operators.size(); ++i) {
      const FlatTable entry = plan_.item(operators, i);
      const std::string name = std::string(entry.text(kOperatorName)) + "." + std::string(entry.text(kOverload));
      ops.push_back(find_op(name));
      if (ops.back() == nullptr) wrong("calls ", name, ", which this runtime does not support");
    }
    if (chains.size() != 1) wrong("must have one chain of calls");
    const FlatVector instructions = plan_.item(chains, 0).vector(kInstructions);
    if (instructions.size() == 0 || instructions.size() > kMostCalls) wrong("makes ", instructions.size(), " calls");
    for (uint32_t i = 0; i < instructions.size(); ++i) {
      const FlatTable instruction = plan_.item(instructions, i);
      const std::optional<FlatTable> call = instruction.table(kInstruction);
      if (instruction.number<uint8_t>(kInstructionType) != kKernelCall || !call)
        wrong("has instructions other than calls of ops");
      const uint32_t op = call->number<uint32_t>(kOperator);
      if (op >= ops.size()) wrong("calls op ", op, " of ", ops.size());
      read_arguments(*ops[op], call->vector(kArguments));
    }
  }

  void read_arguments(const OpSchema& op, const FlatVector& arguments) {
    const size_t inputs = op.inputs_of(arguments.size());
    if (inputs == 0) {
      wrong("calls an op with ", op.inputs, " inputs and ", op.outputs, " outputs with ", arguments.size(),
            " arguments");
    }
    const size_t written = inputs + op.outputs;
    for (uint32_t i = 0; i < inputs; ++i) {
      const Value& value = value_at(arguments, i);
      if (value.tensor() && !value.has_data) wrong("reads a tensor before it is written");
    }
    for (uint32_t i = static_cast<uint32_t>(inputs); i < written; ++i) {
      Value& value = value_at(arguments, i);
      if (!value.tensor() || value.input) wrong("writes to a value that is not one of its own tensors");
      value.has_data = true;
    }
    value_at(arguments, static_cast<uint32_t>(written));
  }

  const FlatTable& plan_;
  const std::string where_;
  uint64_t arena_bytes_ = 0;
  std::vector<Value> values_;
  std::vector<ArenaTensor> arena_;
};

}  // namespace

std::map<std::string, std::vector<ArenaTensor>> check_program(const std::byte* data, size_t size,
                                                              const std::string& path) {
  const FlatBuffer buffer(data, size, path);
  const FlatTable program = FlatTable::root(buffer);
  const std::optional<FlatTable> constants = program.table(kConstantSegment);
  if (program.vector(kConstants).size() > 0 || program.vector(kDelegateData).size() > 0 ||
      program.vector(kMutableData).size() > 0 || program.vector(kNamedData).size() > 0 ||
      (constants && constants->vector(kOffsets, sizeof(uint64_t)).size() > 1)) {
    fail(path, ": has constant data; the file is damaged; export the bundle again");
  }
  const FlatVector plans = program.vector(kPlans);
  if (plans.size() == 0 || plans.size() > kMostMethods) fail(path, ": has ", plans.size(), " methods");
  std::map<std::string, std::vector<ArenaTensor>> methods;
  for (uint32_t i = 0; i < plans.size(); ++i) {
    const FlatTable plan = program.item(plans, i);
    const std::string name(plan.text(kName));
    if (name.find('\0') != std::string::npos) fail(path, ": method ", name, " has an invalid name");
    if (!methods.emplace(name, MethodCheck(plan, path + ": method " + name).run()).second) {
      fail(path, ": method ", name, " is duplicated");
    }
  }
  return methods;
}

}  // namespace mft
