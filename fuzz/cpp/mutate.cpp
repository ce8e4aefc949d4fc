/// How libFuzzer changes an input. JSON changes as values, since changed bytes hardly ever leave a text that is still
/// JSON. Anything else changes half of the time only in a few bytes where they stand: formats full of offsets fall
/// apart where something is put in or left out.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using Json = nlohmann::ordered_json;
using Random = std::minstd_rand;

void collect(Json& value, std::vector<Json*>& found) {
  found.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& item : value) collect(item, found);
}

/// Changes a value of the JSON text that `data` is, up to a zero byte. Returns the new size, 0 where it is no JSON.
size_t mutate_json(uint8_t* data, size_t size, size_t most, Random& random) {
  static const Json odd = Json::parse(
      R"([null, true, false, 0, 1, -1, 2, 64, 2147483647, 2147483648, 4294967295, 9223372036854775807, -9223372036854775808,
          18446744073709551615, 1e300, 0.5, -0.0, "", "..", "a/b", "\n\u001b", [], {}, [[]], [0], {"": 0}])");
  const char* text = reinterpret_cast<const char*>(data);
  const char* end = std::find(text, text + size, '\0');
  Json json = Json::parse(text, end, nullptr, false);
  if (json.is_discarded() || !json.is_structured()) return 0;
  for (unsigned left = 1 + random() % 3; left > 0; --left) {
    std::vector<Json*> values;
    collect(json, values);
    Json& value = *values[random() % values.size()];
    if (value.is_structured() && !value.empty() && random() % 3 == 0) {
      auto item = value.begin();
      std::advance(item, static_cast<int64_t>(random() % value.size()));
      value.erase(item);
    } else if (&value != &json) {
      value = random() % 4 == 0 ? Json(*values[random() % values.size()]) : odd[random() % odd.size()];
    }
  }
  const std::string changed = json.dump() + std::string(end, text + size);
  if (changed.size() > most) return 0;
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  Random random(seed);
  if (random() % 8 != 0) {
    if (const size_t changed = mutate_json(data, size, most, random); changed > 0) return changed;
  }
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
