#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mft {

/// The numbers from 1 to 1e18 that `measure` gives for `names`, or gave within the last day, in this process or
/// another: they are kept under `key` in $XDG_CACHE_HOME/mobile-ft/measurements.json (~/.cache without it), if there is
/// a home, so that plans do not change from one to the next with the noise of measuring. Nothing is kept of no numbers.
std::vector<double> remembered(const std::string& key, const std::vector<std::string>& names,
                               const std::function<std::vector<double>()>& measure);

}  // namespace mft
