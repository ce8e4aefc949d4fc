#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace mft {

/// SHA-256 (FIPS 180-4) of data in pieces. Uses the processor's SHA instructions if it has them.
class Sha256 {
 public:
  void update(const void* data, size_t size);
  /// Returns the digest in hexadecimal. No data may be added afterwards.
  std::string hex();

 private:
  void blocks(const uint8_t* data, size_t count);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_{};  // bytes of an incomplete block
  uint64_t size_ = 0;
};

}  // namespace mft
