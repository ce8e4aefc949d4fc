#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mft {

/// What a version loses on a row.
struct HeldOutLoss {
  double sum;     // of its targets, or the loss of its pair or label
  int64_t count;  // of targets; 1 for a pair or label
};

/// What a version loses on held-out rows and on general text, in float32.
struct VersionLosses {
  std::map<std::string, HeldOutLoss> rows;  // by id
  double general = 0;                       // mean loss of the general text; 0: not known
  std::string options;                      // that these losses depend on, as text
};

/// Reads what was computed for the version in `folder` with these options; nothing if there is nothing, or it is
/// damaged or of other options.
VersionLosses read_losses(const std::string& folder, const std::string& options);
void write_losses(const std::string& folder, const VersionLosses& losses);

/// Removes a row from what was computed for the version in `folder`.
void remove_loss(const std::string& folder, const std::string& id);

}  // namespace mft
