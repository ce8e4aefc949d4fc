/// How libFuzzer changes an input: half of the time as it would itself, and half of the time only in a few bytes where
/// they stand, since formats full of offsets fall apart where something is put in or left out.

#include <cstdint>
#include <cstring>
#include <random>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  std::minstd_rand random(seed);
  constexpr size_t kWord = 8;
  if (size < kWord || random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  for (unsigned left = 1 + random() % 3; left > 0; --left) {
    const size_t bytes = size_t{1} << random() % 4;
    const size_t at = random() % (size / bytes) * bytes;
    uint8_t word[kWord] = {};
    std::memcpy(word, data + at, bytes);
    LLVMFuzzerMutate(word, bytes, bytes);
    std::memcpy(data + at, word, bytes);
  }
  return size;
}
