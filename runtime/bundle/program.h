#pragma once

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/base/file.h"
#include "runtime/bundle/program_check.h"
#include "runtime/ops/context.h"

namespace mft {
/// Initializes ExecuTorch without its log. `Program` calls it too.
void start_executorch();

/// An input of a method call. `tokens` is the size of dimension `token_dim`, or -1 if the program fixes the whole
/// shape. `bytes` is the size of `data`; too small a size is an error, never an overrun.
struct Input {
  const void* data;
  size_t bytes;
  int64_t tokens = -1;
  size_t token_dim = 0;
};

/// An output. An op that would write beyond `bytes` fails.
struct Output {
  void* data;
  size_t bytes;
  int64_t tokens = -1;
  size_t token_dim = 0;
};

/// program.pte. Its methods share one activation arena and one kernel scratch, because they never run concurrently.
class Program {
 public:
  /// Throws Error if the file is not a program that `check_program` accepts.
  explicit Program(const std::string& path);
  ~Program();

  /// Allocates the kernels' scratch and frees an earlier one. It must be called before the first `run`. Its last
  /// `staged` bytes are reserved for staging in the methods `<kind>_forward_save` and `<kind>_backward`.
  void reserve_scratch(size_t bytes, size_t staged);

  /// Runs a method. Throws Error, with the method and the input or output, if a shape does not fit.
  void run(const std::string& method, const std::vector<Input>& inputs, const std::vector<Output>& outputs);

  /// The context in which the ops of all methods compute.
  OpContext& op_context() { return op_context_; }
  const OpContext& op_context() const { return op_context_; }

  /// {method: (calls, seconds)} since the scratch was allocated, including mapping of inputs.
  std::map<std::string, std::pair<int64_t, double>> times() const;

  /// The size of the largest method's arena. A call touches only the part for its number of tokens.
  const Buffer& arena() const { return arena_; }
  const Buffer& scratch() const { return scratch_; }

  /// The tensors of a method in the arena. Throws Error if there is no such method.
  const std::vector<ArenaTensor>& arena_tensors(const std::string& method) const;

  /// Sizes of input `index` of a method; upper bounds for dynamic dimensions.
  std::vector<int64_t> input_sizes(const std::string& method, size_t index) const;

 private:
  struct Loaded;
  Loaded& loaded(const std::string& method);

  MappedFile file_;
  std::map<std::string, std::vector<ArenaTensor>> arena_tensors_;
  executorch::extension::BufferDataLoader loader_;
  std::unique_ptr<executorch::runtime::Program> program_;
  Buffer arena_;
  Buffer scratch_;
  std::unique_ptr<executorch::runtime::MemoryAllocator> whole_scratch_;
  std::unique_ptr<executorch::runtime::MemoryAllocator> before_staged_;
  std::map<std::string, std::unique_ptr<Loaded>> methods_;
  OpContext op_context_;
};

}  // namespace mft
