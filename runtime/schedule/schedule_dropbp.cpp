#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/schedule/schedule.h"

namespace mft {
namespace {

constexpr double kMeasured = 0.1;  // fraction of the run after which sensitivities are measured
constexpr int kTenths = 9;         // the highest drop rate, in tenths

/// Drops each unit at random with its rate. If more than round(ratio x units) are left, drops those with the highest
/// rates too. Among equal rates, the lowest unit is dropped first, because nothing below the lowest kept unit has to
/// run.
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t units) {
  std::vector<double> rates = schedule.drop_rates;
  if (rates.empty()) rates.assign(static_cast<size_t>(units), 1 - schedule.ratio);
  Random random(schedule.seed, static_cast<uint64_t>(step));
  std::vector<bool> kept;
  for (const double rate : rates) kept.push_back(random.uniform() >= rate);
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rates[a] > rates[b]; });
  int64_t too_many = std::count(kept.begin(), kept.end(), true) - share_of(schedule.ratio, units);
  for (const size_t unit : order) {
    if (too_many <= 0) break;
    too_many -= kept[unit];
    kept[unit] = false;
  }
  // If all units are dropped, the paper skips the step. Here, the unit with the lowest rate is trained; among equal
  // rates the highest unit, which costs the least.
  if (std::find(kept.begin(), kept.end(), true) == kept.end()) kept[order.back()] = true;
  return kept;
}

}  // namespace

const ScheduleRule kDropBP = {"dropbp", select,
                              [](const Schedule& schedule, int64_t units) { return share_of(schedule.ratio, units); },
                              Rest::kFrozen, true};

int64_t Schedule::measuring_step() const {
  return rule->drops_units ? static_cast<int64_t>(kMeasured * static_cast<double>(steps)) : -1;
}

std::vector<double> allocate_drop_rates(const std::vector<double>& sensitivities, const std::vector<double>& flops,
                                        double target) {
  if (sensitivities.size() != flops.size()) fail("the number of sensitivities must be the number of units");
  const double total = std::accumulate(flops.begin(), flops.end(), 0.0);
  std::vector<int> tenths(flops.size());
  const double wanted = 10 * target * total * (1 - 1e-12);
  double dropped = 0;  // ten times the average number of dropped operations, exact
  while (dropped < wanted) {
    size_t best = flops.size();
    const auto cost = [&](size_t u) { return sensitivities[u] * (tenths[u] + 1); };
    for (size_t u = 0; u < flops.size(); ++u) {
      if (tenths[u] < kTenths && (best == flops.size() || cost(u) < cost(best))) best = u;
    }
    if (best == flops.size()) break;
    ++tenths[best];
    dropped += flops[best];
  }
  std::vector<double> rates;
  for (const int t : tenths) rates.push_back(t / 10.0);
  return rates;
}

}  // namespace mft
