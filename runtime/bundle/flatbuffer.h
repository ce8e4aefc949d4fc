#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace mft {

/// Untrusted bytes of a little-endian flatbuffer. Any access outside of them throws Error with `path`.
class FlatBuffer {
 public:
  FlatBuffer(const std::byte* data, size_t size, std::string path) : data_(data), size_(size), path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  template <typename T>
  T read(uint64_t at) const {
    T value;
    std::memcpy(&value, bytes(at, sizeof(T)), sizeof(T));
    return value;
  }
  /// Returns `count` bytes at `at`.
  const std::byte* bytes(uint64_t at, uint64_t count) const {
    if (at > size_ || count > size_ - at) fail(path_, ": an offset points outside of the file; the file is damaged");
    return data_ + at;
  }
  /// Returns the position to which the offset at `at` points.
  uint64_t follow(uint64_t at) const { return at + read<uint32_t>(at); }
  /// Limits the number of tables read, because few bytes can refer to the same tables many times.
  void count_table() const {
    if (++tables_ > kMostTables) fail(path_, ": has more than ", kMostTables, " entries; the file is damaged");
  }

 private:
  static constexpr int64_t kMostTables = 1000000;  // the limit of flatbuffers' own verifier

  const std::byte* data_;
  size_t size_;
  std::string path_;
  mutable int64_t tables_ = 0;
};

/// A vector of numbers, tables or strings.
class FlatVector {
 public:
  FlatVector() = default;
  FlatVector(const FlatBuffer& buffer, uint64_t at, size_t item_bytes)
      : buffer_(&buffer), begin_(at + sizeof(uint32_t)), size_(buffer.read<uint32_t>(at)) {
    buffer.bytes(begin_, uint64_t{size_} * item_bytes);
  }
  uint32_t size() const { return size_; }

  template <typename T>
  T number(uint32_t i) const {
    return buffer_->read<T>(begin_ + uint64_t{i} * sizeof(T));
  }
  /// Returns the position of item `i` of a vector of tables.
  uint64_t place(uint32_t i) const { return buffer_->follow(begin_ + uint64_t{i} * sizeof(uint32_t)); }

 private:
  const FlatBuffer* buffer_ = nullptr;
  uint64_t begin_ = 0;
  uint32_t size_ = 0;
};

/// A table of a flatbuffer. Fields are numbered as in the schema; a union has two, its type and its value.
class FlatTable {
 public:
  FlatTable(const FlatBuffer& buffer, uint64_t at) : buffer_(&buffer), at_(at) {
    buffer.count_table();
    const int64_t vtable = static_cast<int64_t>(at) - buffer.read<int32_t>(at);
    if (vtable < 0) fail(buffer.path(), ": has a table without fields; the file is damaged");
    vtable_ = static_cast<uint64_t>(vtable);
    vtable_bytes_ = buffer.read<uint16_t>(vtable_);
    buffer.bytes(vtable_, vtable_bytes_);
  }
  static FlatTable root(const FlatBuffer& buffer) { return {buffer, buffer.follow(0)}; }

  bool has(int field) const { return place(field) != 0; }
  template <typename T>
  T number(int field) const {
    const uint64_t at = place(field);
    return at == 0 ? T{} : buffer_->read<T>(at);
  }
  std::optional<FlatTable> table(int field) const {
    const uint64_t at = place(field);
    if (at == 0) return std::nullopt;
    return FlatTable(*buffer_, buffer_->follow(at));
  }
  /// Returns a vector with items of `item_bytes`, empty if it is left out.
  FlatVector vector(int field, size_t item_bytes = sizeof(uint32_t)) const {
    const uint64_t at = place(field);
    return at == 0 ? FlatVector() : FlatVector(*buffer_, buffer_->follow(at), item_bytes);
  }
  FlatTable item(const FlatVector& tables, uint32_t i) const { return {*buffer_, tables.place(i)}; }
  /// Returns a string, empty if it is left out.
  std::string_view text(int field) const {
    const uint64_t at = place(field);
    if (at == 0) return {};
    const uint64_t begin = buffer_->follow(at);
    const uint32_t size = buffer_->read<uint32_t>(begin);
    return {reinterpret_cast<const char*>(buffer_->bytes(begin + sizeof(uint32_t), size)), size};
  }

 private:
  /// Returns the position of a field, or 0 if it is left out.
  uint64_t place(int field) const {
    const uint64_t slot = 4 + 2 * static_cast<uint64_t>(field);
    const uint16_t offset = slot + 2 <= vtable_bytes_ ? buffer_->read<uint16_t>(vtable_ + slot) : 0;
    return offset == 0 ? 0 : at_ + offset;
  }

  const FlatBuffer* buffer_;
  uint64_t at_;
  uint64_t vtable_ = 0;
  uint16_t vtable_bytes_ = 0;
};

}  // namespace mft
