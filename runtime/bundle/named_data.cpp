#include "runtime/bundle/named_data.h"

#include <vector>

#include "runtime/base/error.h"
#include "runtime/bundle/flatbuffer.h"

namespace mft {
namespace {

constexpr uint64_t kAlignment = 64;
// The header: root table, "FT01", "FH01", its length, then offset and size of the flatbuffer and of the data.
constexpr size_t kHeaderData = 32;
// Fields in the schema's order.
enum FlatTensorField { kVersion, kSegments, kNamedData };
enum SegmentField { kOffset, kSize };
enum NamedField { kKey, kSegmentIndex };

}  // namespace

std::map<std::string, FilePlace> read_named_data(const OpenFile& file, std::string_view index) {
  const std::string& path = file.path();
  const FlatBuffer buffer(reinterpret_cast<const std::byte*>(index.data()), index.size(), path);
  const auto magic = [&](size_t at) { return std::string(reinterpret_cast<const char*>(buffer.bytes(at, 4)), 4); };
  if (magic(4) != "FT01" || magic(8) != "FH01") fail(path, ": not an ExecuTorch named-data file");
  const uint64_t base = buffer.read<uint64_t>(kHeaderData);
  const FlatTable root = FlatTable::root(buffer);

  const FlatVector segments = root.vector(kSegments);
  std::vector<FilePlace> places;
  for (uint32_t i = 0; i < segments.size(); ++i) {
    const FlatTable segment = root.item(segments, i);
    places.push_back({segment.number<uint64_t>(kOffset), segment.number<uint64_t>(kSize)});
  }
  std::map<std::string, FilePlace> found;
  const FlatVector named = root.vector(kNamedData);
  for (uint32_t i = 0; i < named.size(); ++i) {
    const FlatTable entry = root.item(named, i);
    const std::string name(entry.text(kKey));
    const uint32_t segment = entry.number<uint32_t>(kSegmentIndex);
    if (segment >= places.size()) fail(path, ": tensor ", name, " has no segment");
    FilePlace place = places[segment];
    const bool inside = base <= file.size() && place.offset <= file.size() - base &&
                        place.bytes <= file.size() - base - place.offset && base + place.offset >= index.size();
    if (!inside) fail(path, ": tensor ", name, " is outside of the file");
    place.offset += base;
    if (place.offset % kAlignment != 0) fail(path, ": tensor ", name, " is not aligned to ", kAlignment, " bytes");
    if (!found.emplace(name, place).second) fail(path, ": tensor ", name, " is duplicated");
  }
  return found;
}

}  // namespace mft
