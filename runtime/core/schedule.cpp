#include "runtime/core/schedule.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/error.h"
#include "runtime/core/random.h"

namespace mft {
namespace {

int64_t share(double ratio, int64_t layers) {
  return std::clamp<int64_t>(std::llround(ratio * static_cast<double>(layers)), 1, layers);
}

std::vector<int64_t> depth_cycle(const Schedule& schedule, int64_t layers) {
  std::vector<int64_t> depths = schedule.suffix_depths;
  if (depths.empty()) {
    for (double factor : {0.5, 1.0, 1.5, 1.0}) depths.push_back(share(schedule.ratio * factor, layers));
  }
  for (int64_t depth : depths) {
    if (depth < 1 || depth > layers) fail("suffix depth ", depth, ": must be 1 to ", layers, ", the model's layers");
  }
  return depths;
}

void check_ratio(double ratio) {
  if (!(ratio > 0.0 && ratio <= 1.0)) fail("ratio ", ratio, ": must be above 0 and at most 1");
}

}  // namespace

std::vector<bool> Schedule::select(int64_t step, int64_t layers) const {
  check_ratio(ratio);
  std::vector<bool> selected(static_cast<size_t>(layers), kind == Kind::kFull);
  if (kind == Kind::kSuffix) {
    const std::vector<int64_t> depths = depth_cycle(*this, layers);
    const int64_t depth = depths[static_cast<size_t>(step) % depths.size()];
    for (int64_t i = layers - depth; i < layers; ++i) selected[static_cast<size_t>(i)] = true;
  } else if (kind == Kind::kLcsb) {
    const int64_t count = share(ratio, layers);
    if (selection == Selection::kContiguous) {
      for (int64_t i = 0; i < count; ++i) selected[static_cast<size_t>((step * count + i) % layers)] = true;
    } else if (selection == Selection::kStrided) {
      for (int64_t i = 0; i < layers; ++i) selected[static_cast<size_t>(i)] = (i + step) * count % layers < count;
    } else {
      const auto order = Random(seed, static_cast<uint64_t>(step)).permutation(layers);
      for (int64_t i = 0; i < count; ++i) selected[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
    }
  }
  return selected;
}

int64_t Schedule::most_selected(int64_t layers) const {
  check_ratio(ratio);
  if (kind == Kind::kFull) return layers;
  if (kind == Kind::kLcsb) return share(ratio, layers);
  const auto depths = depth_cycle(*this, layers);
  return *std::max_element(depths.begin(), depths.end());
}

const char* Schedule::name() const {
  switch (kind) {
    case Kind::kFull:
      return "full";
    case Kind::kLcsb:
      return "lcsb";
    default:
      return "suffix";
  }
}

}  // namespace mft
