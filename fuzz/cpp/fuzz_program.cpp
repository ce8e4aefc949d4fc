/// program.pte, with the checksum that makes it be read; a program that is let through runs.

#include "fuzz/cpp/fuzz.h"

static const mft_fuzz::TestBundle& bundle() {
  static const mft_fuzz::TestBundle copy;
  return copy;
}

std::vector<std::string> seeds() { return {bundle().original("program.pte")}; }

void run(const std::string& data) {
  bundle().replace("program.pte", data);
  mft_fuzz::use_bundle(bundle().folder());
}
