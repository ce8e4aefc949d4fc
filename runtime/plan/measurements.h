#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mft {

/// Returns the numbers (1 to 1e18) of `measure` for `names`, or those of the last day from this or another process.
/// They are cached under `key` in $XDG_CACHE_HOME/mobile-ft/measurements.json (default: ~/.cache), if there is a home,
/// so that the noise of measurements does not change plans. An empty result is not cached.
std::vector<double> remembered(const std::string& key, const std::vector<std::string>& names,
                               const std::function<std::vector<double>()>& measure);

}  // namespace mft
