#include "runtime/bundle/program.h"

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"

namespace mft {

using executorch::extension::MallocMemoryAllocator;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Method;
using executorch::runtime::Span;

namespace {

using Sizes = std::vector<executorch::aten::SizesType>;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// The sizes of a tensor, with dimension `token_dim` set to `tokens` if that is not -1.
Sizes sizes_of(const executorch::runtime::TensorInfo& info, int64_t tokens, size_t token_dim) {
  Sizes sizes(info.sizes().begin(), info.sizes().end());
  if (tokens >= 0 && token_dim < sizes.size()) sizes[token_dim] = static_cast<executorch::aten::SizesType>(tokens);
  return sizes;
}

size_t bytes_of(const executorch::runtime::TensorInfo& info, const Sizes& sizes) {
  size_t bytes = executorch::runtime::elementSize(info.scalar_type());
  for (auto n : sizes) bytes *= static_cast<size_t>(n);
  return bytes;
}

/// Errors are reported by exceptions; ExecuTorch's own log would only repeat them.
void discard_log(et_timestamp_t, et_pal_log_level_t, const char*, const char*, size_t, const char*, size_t) {}

}  // namespace

void start_executorch() {
  static const bool done = [] {
    executorch::runtime::runtime_init();
    return executorch::runtime::register_pal(executorch::runtime::PalImpl::create(discard_log, __FILE__));
  }();
  (void)done;
}

struct Program::Loaded {
  MallocMemoryAllocator allocator;
  Span<uint8_t> arena;
  HierarchicalAllocator planned;
  MemoryManager manager;
  Method method;
  int64_t calls = 0;
  double seconds = 0;

  static Method load(const executorch::runtime::Program& program, const std::string& path, const std::string& name,
                     MemoryManager* manager) {
    auto method = program.load_method(name.c_str(), manager);
    if (!method.ok()) {
      fail(path, ": method ", name, " cannot be loaded (error ", static_cast<int>(method.error()),
           "); the bundle was exported for another version of this runtime; export it again");
    }
    return std::move(method.get());
  }

  Loaded(const executorch::runtime::Program& program, const std::string& path, const std::string& name,
         const Buffer& buffer, MemoryAllocator* temp)
      : arena(reinterpret_cast<uint8_t*>(buffer.bytes()), buffer.size()),
        planned({&arena, 1}),
        manager(&allocator, &planned, temp),
        method(load(program, path, name, &manager)) {}
};

Program::~Program() = default;

Program::Program(const std::string& path)
    : file_(path),
      arena_tensors_(check_program(file_.data(), file_.size(), path)),
      loader_(file_.data(), file_.size()) {
  start_executorch();
  auto program =
      executorch::runtime::Program::load(&loader_, executorch::runtime::Program::Verification::InternalConsistency);
  if (!program.ok()) fail(path, ": not an ExecuTorch program; export the bundle again");
  program_ = std::make_unique<executorch::runtime::Program>(std::move(program.get()));
  size_t arena = 0;
  for (size_t i = 0; i < program_->num_methods(); ++i) {
    const auto meta = program_->method_meta(*program_->get_method_name(i));
    if (!meta.ok()) fail(path, ": not an ExecuTorch program; export the bundle again");
    arena = std::max(arena, static_cast<size_t>(*meta->memory_planned_buffer_size(0)));
  }
  arena_ = Buffer(arena);
}

void Program::reserve_scratch(size_t bytes, size_t staged) {
  if (bytes > UINT32_MAX)
    fail("the kernel scratch needs ", bytes >> 20, " MB, but at most 4095 MB are supported; use shorter sequences");
  methods_.clear();  // they refer to the allocators
  scratch_ = Buffer(bytes);
  const auto first = [this](size_t size) {
    return std::make_unique<MemoryAllocator>(static_cast<uint32_t>(size), reinterpret_cast<uint8_t*>(scratch_.bytes()));
  };
  whole_scratch_ = first(bytes);
  before_staged_ = first(bytes - staged);
}

Program::Loaded& Program::loaded(const std::string& method) {
  const auto known = methods_.find(method);
  if (known != methods_.end()) return *known->second;
  const bool staged = ends_with(method, "_forward_save") || ends_with(method, "_backward");
  MemoryAllocator* scratch = (staged ? before_staged_ : whole_scratch_).get();
  auto made = std::make_unique<Loaded>(*program_, file_.path(), method, arena_, scratch);
  return *(methods_[method] = std::move(made));
}

std::map<std::string, std::pair<int64_t, double>> Program::times() const {
  std::map<std::string, std::pair<int64_t, double>> result;
  for (const auto& [name, entry] : methods_) result[name] = {entry->calls, entry->seconds};
  return result;
}

const std::vector<ArenaTensor>& Program::arena_tensors(const std::string& method) const {
  const auto found = arena_tensors_.find(method);
  if (found == arena_tensors_.end()) fail(file_.path(), ": method ", method, " is missing");
  return found->second;
}

std::vector<int64_t> Program::input_sizes(const std::string& method, size_t index) const {
  const auto meta = program_->method_meta(method.c_str());
  if (!meta.ok()) fail(file_.path(), ": method ", method, " is missing");
  const auto info = meta->input_tensor_meta(index);
  if (!info.ok()) fail(file_.path(), ": method ", method, " has no tensor input ", index);
  return std::vector<int64_t>(info->sizes().begin(), info->sizes().end());
}

void Program::run(const std::string& name, const std::vector<Input>& inputs, const std::vector<Output>& outputs) {
  if (!whole_scratch_) fail("the model is not prepared");
  const auto start = std::chrono::steady_clock::now();
  Loaded& entry = loaded(name);
  Method& method = entry.method;
  const auto meta = method.method_meta();
  if (inputs.size() != meta.num_inputs() || outputs.size() != meta.num_outputs()) {
    fail(file_.path(), ": method ", name, " takes ", meta.num_inputs(), " inputs and returns ", meta.num_outputs(),
         " outputs, but bundle.json lists ", inputs.size(), " and ", outputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto info = meta.input_tensor_meta(i);
    if (!info.ok()) fail(file_.path(), ": method ", name, ", input ", i, " is not a tensor");
    Sizes sizes = sizes_of(*info, inputs[i].tokens, inputs[i].token_dim);
    if (inputs[i].data == nullptr) fail("method ", name, ", input ", i, " has no data");
    if (bytes_of(*info, sizes) > inputs[i].bytes) {
      fail(file_.path(), ": method ", name, ", input ", i, " needs ", bytes_of(*info, sizes),
           " bytes, but the bundle's tensor has ", inputs[i].bytes);
    }
    const auto tensor = executorch::extension::make_tensor_ptr(std::move(sizes), const_cast<void*>(inputs[i].data), {},
                                                               {}, info->scalar_type());
    if (method.set_input(executorch::runtime::EValue(*tensor), i) != executorch::runtime::Error::Ok) {
      fail(file_.path(), ": method ", name, ", input ", i, " has the wrong shape");
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto info = meta.output_tensor_meta(i);
    if (!info.ok() || bytes_of(*info, sizes_of(*info, outputs[i].tokens, outputs[i].token_dim)) > outputs[i].bytes) {
      fail(file_.path(), ": method ", name, ", output ", i, " does not fit the buffer that bundle.json defines");
    }
    // ExecuTorch checks the buffer against the shape of the last call (at first: the largest), not of this one.
    const size_t bytes = std::max(outputs[i].bytes, info->nbytes());
    if (method.set_output_data_ptr(outputs[i].data, bytes, i) != executorch::runtime::Error::Ok) {
      fail(file_.path(), ": method ", name, ", output ", i, " cannot be set");
    }
  }
  op_context_.outputs.clear();
  for (const Output& output : outputs) op_context_.outputs.push_back({output.data, output.bytes});
  op_context_.packed_input.forget();
  const CurrentContext current(op_context_);
  const auto status = method.execute();
  if (status != executorch::runtime::Error::Ok) {
    fail("method ", name, " failed (ExecuTorch error ", static_cast<int>(status), ")");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& written = method.get_output(i).toTensor().sizes();
    const auto expected = sizes_of(*meta.output_tensor_meta(i), outputs[i].tokens, outputs[i].token_dim);
    if (!std::equal(written.begin(), written.end(), expected.begin(), expected.end())) {
      fail(file_.path(), ": method ", name, ", output ", i, " has another shape than in bundle.json");
    }
  }
  ++entry.calls;
  entry.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mft
