/// bundle.json.

#include "fuzz/cpp/fuzz.h"

static const mft_fuzz::TestBundle& bundle() {
  static const mft_fuzz::TestBundle copy;
  return copy;
}

std::vector<std::string> seeds() { return {bundle().original("bundle.json")}; }

void run(const std::string& data) {
  mft_fuzz::write_file(bundle().file("bundle.json"), data);
  mft_fuzz::use_bundle(bundle().folder());
}
