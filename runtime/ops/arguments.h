#pragma once

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <initializer_list>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/ops/context.h"
#include "runtime/ops/op_schema.h"
#include "runtime/platform/scratch.h"

namespace mft {

/// Reads the boxed arguments of one kernel call and checks them: a kernel never sees a shape that does not fit. Throws
/// BadArguments, which `boxed` (register.cpp) turns into ExecuTorch's InvalidArgument.
class Arguments {
 public:
  using Tensor = executorch::aten::Tensor;
  struct BadArguments {};

  Arguments(executorch::runtime::KernelRuntimeContext& context, OpContext& op_context, const OpSchema& schema,
            executorch::runtime::Span<executorch::runtime::EValue*> stack)
      : context_(context), op_context_(op_context), stack_(stack), inputs_(schema.inputs_of(stack.size())) {
    require(inputs_ > 0);
  }

  /// Whether input `i` was given. Programs of older versions leave out inputs that were added later.
  bool has(size_t i) const { return i < inputs_; }

  OpContext& op_context() const { return op_context_; }

  static void require(bool condition) {
    if (!condition) throw BadArguments();
  }

  const Tensor& tensor(size_t i) const {
    require(i < stack_.size() && stack_[i]->isTensor());
    return stack_[i]->toTensor();
  }
  int64_t integer(size_t i) const {
    require(i < stack_.size() && stack_[i]->isInt());
    return stack_[i]->toInt();
  }
  bool boolean(size_t i) const {
    require(i < stack_.size() && stack_[i]->isBool());
    return stack_[i]->toBool();
  }
  float real(size_t i) const {
    require(i < stack_.size() && stack_[i]->isDouble());
    return static_cast<float>(stack_[i]->toDouble());
  }
  bool none(size_t i) const { return !has(i) || stack_[i]->isNone(); }

  /// Float input [.., ..] of exactly these sizes.
  const float* floats(size_t i, std::initializer_list<int64_t> sizes) const {
    return data<float>(i, executorch::aten::ScalarType::Float, sizes);
  }
  const int64_t* integers(size_t i, std::initializer_list<int64_t> sizes) const {
    return data<int64_t>(i, executorch::aten::ScalarType::Long, sizes);
  }

  const uint8_t* bytes(size_t i, std::initializer_list<int64_t> sizes) const {
    return data<uint8_t>(i, executorch::aten::ScalarType::Byte, sizes);
  }

  /// Packed weight at `i`, its format at `i + 1`, its rows at `i + 2`; `cols` from the blocks.
  PackedWeight weight(size_t i) const {
    const Tensor& t = tensor(i);
    require(t.scalar_type() == executorch::aten::ScalarType::Byte && t.dim() == 3);
    require(i + 1 < stack_.size() && stack_[i + 1]->isString());
    PackedWeight w{t.const_data_ptr<uint8_t>(), {}, integer(i + 2), 0, op_context_.read_once};
    require(parse_format(stack_[i + 1]->toString(), &w.format));
    w.cols = t.size(1) * w.format.group;
    require(t.size(2) == static_cast<ssize_t>(w.format.block_bytes()));
    require(w.rows > 0 && (w.rows - 1) / kPanelRows + 1 == t.size(0));
    return w;
  }

  /// LoRA A at `i`, B at `i + 1`, scale at `i + 2`, for weight `w`.
  Lora lora(size_t i, const PackedWeight& w) const {
    require(tensor(i).dim() == 2);
    const int64_t rank = tensor(i).size(0);
    return {floats(i, {rank, w.cols}), floats(i + 1, {w.rows, rank}), rank, real(i + 2)};
  }

  /// Float output `i`, counted from the first output, resized.
  float* output(size_t i, std::initializer_list<int32_t> sizes) const {
    return resized<float>(i, executorch::aten::ScalarType::Float, sizes);
  }
  uint8_t* output_bytes(size_t i, std::initializer_list<int32_t> sizes) const {
    return resized<uint8_t>(i, executorch::aten::ScalarType::Byte, sizes);
  }

  Scratch scratch(size_t bytes) const {
    auto memory = context_.allocate_temp(bytes);
    require(memory.ok());
    return {static_cast<std::byte*>(*memory), bytes};
  }

 private:
  template <typename T>
  const T* data(size_t i, executorch::aten::ScalarType type, std::initializer_list<int64_t> sizes) const {
    const Tensor& t = tensor(i);
    require(t.scalar_type() == type && t.dim() == static_cast<ssize_t>(sizes.size()));
    size_t d = 0;
    for (int64_t n : sizes) require(t.size(d++) == n);
    return t.const_data_ptr<T>();
  }

  template <typename T>
  T* resized(size_t i, executorch::aten::ScalarType type, std::initializer_list<int32_t> sizes) const {
    Tensor t = tensor(inputs_ + i);
    const executorch::aten::ArrayRef<executorch::aten::SizesType> shape(sizes.begin(), sizes.size());
    require(t.scalar_type() == type && executorch::runtime::resize_tensor(t, shape) == executorch::runtime::Error::Ok);
    for (const OutputRoom& room : op_context_.outputs)
      require(room.data != t.const_data_ptr() || t.nbytes() <= room.bytes);
    return t.mutable_data_ptr<T>();
  }

  executorch::runtime::KernelRuntimeContext& context_;
  OpContext& op_context_;
  executorch::runtime::Span<executorch::runtime::EValue*> stack_;
  const size_t inputs_;
};

}  // namespace mft
