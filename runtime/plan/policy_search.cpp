#include "runtime/plan/policy_search.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/bisect.h"

namespace mft {
namespace {

// Number of neighbours tried around each number of stored units at which the costs change. A unit's saved bytes are not
// a multiple of a checkpoint, so the fastest number is near a change, but not always at it.
constexpr int64_t kNeighbours = 4;
// Number of policies, of all groups but one, that are tried at once. It covers all policies of today's models. For
// more, a grid of this size is tried, and then finer grids around its best policy.
constexpr double kGridPoints = 2000;

using Counts = std::vector<int64_t>;

/// The numbers tried for a group: the first, every `step`th after it, and the last.
struct Grid {
  int64_t first, last, step;
};

struct Search {
  PolicyCosts& costs;
  std::vector<size_t> order;  // order of the groups
  std::vector<Grid> grid;
  Counts counts;
  ActivationPolicy best;

  /// Tries numbers of the groups from order[depth] on.
  void from(size_t depth) {
    if (depth == order.size()) return;
    const size_t group = order[depth];
    if (depth + 1 == order.size()) {
      last_group(group);
    } else {
      const auto [first, last, step] = grid[group];
      for (int64_t n = first; n < last + step; n += step) {
        counts[group] = std::min(n, last);
        from(depth + 1);
      }
    }
    counts[group] = 0;
  }

  /// Between 1 and most - 1, the same methods are used. Memory is linear in the number, except for the effect of
  /// offloading. Time is piecewise linear: up to the point at which not all weights stay in memory, from there to the
  /// point at which offloading begins, and from there on.
  void last_group(size_t group) {
    const int64_t most = costs.groups()[group].units;
    const auto at = [&](int64_t n) {
      counts[group] = n;
      return costs.of(counts);
    };
    const auto last = [&](const auto& holds) {
      return last_that(0, most - 1, [&](int64_t n) { return holds(at(n)); });
    };
    const auto fits = [&](const ActivationPolicy& m) { return costs.fits(m); };
    std::set<int64_t> candidates;
    for (const int64_t n :
         {int64_t{0}, most, last([&](const ActivationPolicy& m) { return fits(m) && m.read_seconds == 0; }),
          last([&](const ActivationPolicy& m) { return fits(m) && m.offloaded == 0; }), last(fits)}) {
      for (int64_t near = n - kNeighbours; near <= n + kNeighbours; ++near) {
        if (near >= 0 && near <= most) candidates.insert(near);
      }
    }
    for (const int64_t n : candidates) {
      ActivationPolicy m = at(n);
      const bool better =
          fits(m) && fits(best) ? m.seconds < best.seconds : fits(m) || (!fits(best) && m.total < best.total);
      if (better) best = std::move(m);
    }
  }
};

}  // namespace

ActivationPolicy fastest_policy(PolicyCosts& costs) {
  const std::vector<UnitGroup>& groups = costs.groups();
  const Counts none(groups.size());
  // The last group's number follows from the others in a few tries, so the largest group is last.
  std::vector<size_t> order(groups.size());
  for (size_t g = 0; g < order.size(); ++g) order[g] = g;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return groups[a].units < groups[b].units; });
  const int64_t steps =
      static_cast<int64_t>(std::pow(kGridPoints, 1 / std::max(1.0, static_cast<double>(order.size()) - 1)));
  std::vector<Grid> grid;
  for (const UnitGroup& group : groups) grid.push_back({0, group.units, group.units / steps + 1});
  Search search{costs, order, grid, none, costs.of(none)};
  while (true) {
    search.from(0);
    bool finest = true;
    for (size_t g = 0; g < groups.size(); ++g) {
      Grid& tried = search.grid[g];
      finest = finest && (tried.step == 1 || g == order.back());
      const int64_t around = tried.step, near = search.best.stored[g];
      const int64_t finer = std::min(2 * around / steps + 1, std::max<int64_t>(1, around / 2));
      tried = {std::max<int64_t>(0, near - around), std::min(groups[g].units, near + around), finer};
    }
    if (finest) return search.best;
  }
}

}  // namespace mft
