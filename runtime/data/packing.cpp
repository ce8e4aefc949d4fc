#include "runtime/data/packing.h"

#include <algorithm>
#include <deque>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace mft {
namespace {

constexpr size_t kOpenSequences = 16;      // sequences that first-fit considers; more would hardly pack tighter
constexpr uint64_t kShuffle = 0x7061636b;  // stream of random numbers; those of training start at 0

struct OpenSequence {
  size_t index;
  int64_t room;  // free positions
};

}  // namespace

std::vector<std::vector<int64_t>> pack(const std::vector<int64_t>& lengths, int64_t seq_len, uint64_t seed) {
  std::vector<std::vector<int64_t>> sequences;
  std::deque<OpenSequence> open;
  for (const int64_t item : Random(seed, kShuffle).permutation(static_cast<int64_t>(lengths.size()))) {
    const int64_t places = lengths[static_cast<size_t>(item)];
    if (places < 1 || places > seq_len) fail("item ", item, " has ", places, " positions; it must have 1 to ", seq_len);
    auto fit = std::find_if(open.begin(), open.end(), [&](const OpenSequence& one) { return places <= one.room; });
    if (fit == open.end()) {
      open.push_back({sequences.size(), seq_len});
      sequences.emplace_back();
      if (open.size() > kOpenSequences) open.pop_front();
      fit = open.end() - 1;
    }
    sequences[fit->index].push_back(item);
    fit->room -= places;
    if (fit->room == 0) open.erase(fit);
  }
  return sequences;
}

}  // namespace mft
