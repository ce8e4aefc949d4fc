#pragma once

namespace mft {

/// GFLOP/s of multiply-adds in registers, all threads in use together: the best of several runs.
double fma_peak_gflops();

}  // namespace mft
