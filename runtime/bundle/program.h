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
/// Starts ExecuTorch without its log. A program does so itself.
void start_executorch();

/// One input of a method call. `tokens` is the size of dimension `token_dim`, -1 where the program fixes the whole
/// shape. `bytes` is what `data` holds; too little is an error, never an overrun.
struct Input {
  const void* data;
  size_t bytes;
  int64_t tokens = -1;
  size_t token_dim = 0;
};

/// One output, likewise: an op that would write past `bytes` fails.
struct Output {
  void* data;
  size_t bytes;
  int64_t tokens = -1;
  size_t token_dim = 0;
};

/// program.pte: methods that share one activation arena and one kernel scratch, since they never run at once.
class Program {
 public:
  /// Throws Error where the file is not a program that `check_program` lets through.
  explicit Program(const std::string& path);
  ~Program();

  /// Allocates the kernels' scratch, in place of any earlier one; must be called before the first `run`. Its last
  /// `staged` bytes are no kernel's where something is staged: in methods `<kind>_forward_save` and `<kind>_backward`.
  void reserve_scratch(size_t bytes, size_t staged);

  /// Runs a method. Throws Error naming method and input or output where a shape does not fit.
  void run(const std::string& method, const std::vector<Input>& inputs, const std::vector<Output>& outputs);

  /// What the ops of all methods compute with.
  OpContext& op_context() { return op_context_; }
  const OpContext& op_context() const { return op_context_; }

  /// {method: (calls, seconds)} since the scratch was reserved, mapping of inputs included.
  std::map<std::string, std::pair<int64_t, double>> times() const;

  /// Of the largest method's size; a call touches what its token count needs.
  const Buffer& arena() const { return arena_; }
  const Buffer& scratch() const { return scratch_; }

  /// What a method keeps in the arena. Throws Error where there is no such method.
  const std::vector<ArenaTensor>& arena_tensors(const std::string& method) const;

  /// Fixed sizes of input `index` of a method (upper bounds where dynamic).
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
