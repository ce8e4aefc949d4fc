#include "runtime/base/safetensors.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace mft {
namespace {

using Json = nlohmann::json;

size_t dtype_bytes(const std::string& dtype) {
  if (dtype == "U8" || dtype == "I8" || dtype == "BOOL") return 1;
  if (dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F64" || dtype == "I64") return 8;
  return 0;
}

/// The number of elements of a shape, or -1 if a dimension is negative or the product exceeds `limit`.
int64_t element_count(const std::vector<int64_t>& shape, int64_t limit) {
  int64_t count = 1;
  for (int64_t n : shape) {
    if (n < 0 || (n > 0 && count > limit / n)) return -1;
    count *= n;
  }
  return count;
}

}  // namespace

SafeTensors::SafeTensors(const std::string& path) : file_(path) {
  uint64_t header_size = 0;
  if (file_.size() < 8) fail(path, ": not a safetensors file (shorter than its header)");
  std::memcpy(&header_size, file_.data(), 8);
  if (header_size > file_.size() - 8) fail(path, ": not a safetensors file, or truncated");
  const char* text = reinterpret_cast<const char*>(file_.data()) + 8;
  const std::byte* body = file_.data() + 8 + header_size;
  const size_t body_size = file_.size() - 8 - header_size;
  try {
    const Json header = parse_json<Json>({text, header_size}, path + ": not a safetensors file");
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      View view{entry.at("dtype"), entry.at("shape").get<std::vector<int64_t>>(), nullptr, 0};
      const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
      const size_t size = dtype_bytes(view.dtype);
      if (size == 0) fail(path, ": tensor ", name, " has unsupported dtype ", view.dtype);
      const int64_t count = element_count(view.shape, static_cast<int64_t>(body_size));
      if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > body_size || count < 0 ||
          offsets[1] - offsets[0] != static_cast<uint64_t>(count) * size) {
        fail(path, ": tensor ", name, " is outside of the file; the file is truncated or damaged");
      }
      view.data = body + offsets[0];
      view.bytes = offsets[1] - offsets[0];
      tensors_.emplace(name, std::move(view));
    }
  } catch (const Json::exception& error) {
    fail(path, ": not a safetensors file (", error.what(), ")");
  }
}

const SafeTensors::View& SafeTensors::get(const std::string& name, const std::string& dtype) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(path(), ": tensor ", name, " is missing");
  if (found->second.dtype != dtype) {
    fail(path(), ": tensor ", name, " is ", found->second.dtype, "; it must be ", dtype);
  }
  return found->second;
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<FilePart> parts(2);
  uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    uint64_t bytes = dtype_bytes(tensor.dtype);
    for (int64_t n : tensor.shape) bytes *= static_cast<uint64_t>(n);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    parts.push_back({tensor.data, bytes});
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // keeps the tensors aligned
  const uint64_t size = text.size();
  parts[0] = {&size, 8};
  parts[1] = {text.data(), text.size()};
  write_atomically(path, parts);
}

}  // namespace mft
