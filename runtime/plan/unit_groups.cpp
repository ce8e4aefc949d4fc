#include "runtime/plan/unit_groups.h"

namespace mft {

std::vector<UnitGroup> unit_groups(const Model& model, const UnitTimes& times, int64_t tokens, int64_t mlp_tokens,
                                   const Selectable& selectable, int64_t selected) {
  const Bundle& b = model.bundle();
  std::vector<UnitGroup> groups;
  for (size_t k = 0; k < b.kinds.size(); ++k) {
    const UnitKind& kind = b.kinds[k];
    const uint64_t saved = model.saved_bytes(kind, tokens, mlp_tokens);
    const double seconds = times.unit(kind.recompute_flops, kind.call_tokens(mlp_tokens));
    auto group = std::find_if(groups.begin(), groups.end(), [&](const UnitGroup& g) {
      return g.saved == saved && g.reads_x == kind.backward_reads_x && g.seconds == seconds;
    });
    if (group == groups.end()) {
      groups.push_back({kind.name, std::vector<bool>(b.kinds.size()), 0, saved, kind.backward_reads_x, seconds});
      group = groups.end() - 1;
    }
    group->kinds[k] = true;
  }
  for (UnitGroup& group : groups) {
    std::vector<int64_t> units(static_cast<size_t>(selectable.count()));
    for (size_t u = 0; u < b.units.size(); ++u) units[selectable.of(u)] += group.kinds[b.units[u].kind];
    group.units = most_of(units, selected);
  }
  return groups;
}

}  // namespace mft
