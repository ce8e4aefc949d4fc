#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mft {

struct Bytes {
  const void* data;
  size_t size;
};

/// SHA-512 (FIPS 180-4) of the concatenated parts.
std::array<uint8_t, 64> sha512(const std::vector<Bytes>& parts);

}  // namespace mft
