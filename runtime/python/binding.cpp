/// The Python module `_core`: the same runs, models and generators as mft-run's, on numpy arrays.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <optional>

#include "runtime/base/renamed.h"
#include "runtime/bundle/program.h"
#include "runtime/bundle/signature.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/formats/quantize.h"
#include "runtime/platform/process_memory.h"
#include "runtime/python/calls.h"
#ifdef MFT_PYTHON_KERNELS
#include "runtime/python/kernels.h"
#endif
#include "runtime/python/model.h"
#include "runtime/python/options.h"
#include "runtime/python/text.h"
#include "runtime/python/training.h"

namespace mft {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Importance = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::numpy, uint8_t>;

Bytes quantized(const Matrix& weight, const std::string& name, const float* importance, size_t importances) {
  Format format;
  if (!parse_format(name, &format)) fail("weight format ", name, " is not known");
  const int64_t rows = static_cast<int64_t>(weight.shape(0)), cols = static_cast<int64_t>(weight.shape(1));
  if (rows == 0 || cols == 0 || cols % format.group != 0) {
    fail("a weight [", rows, ", ", cols, "] cannot be packed as ", name,
         ": the number of columns must be a multiple of ", format.group);
  }
  if (importances != weight.shape(1))
    fail("importance has ", importances, " values; the weight has ", cols, " columns");
  for (size_t i = 0; importance != nullptr && i < importances; ++i) {
    if (!(importance[i] > 0) || !std::isfinite(importance[i]))
      fail("importance ", importance[i], " of column ", i, ": must be positive and finite");
  }
  auto* packed = new std::vector<uint8_t>(packed_bytes(format, rows, cols));
  nb::capsule owner(packed, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
  bool fits = false;
  {
    nb::gil_scoped_release released;
    fits = quantize(weight.data(), rows, cols, importance, format, packed->data());
  }
  if (!fits) fail("has values that are not finite, or too large for ", name);
  const size_t panels = (weight.shape(0) + kPanelRows - 1) / kPanelRows;
  return Bytes(packed->data(), {panels, weight.shape(1) / static_cast<size_t>(format.group), format.block_bytes()},
               owner);
}

}  // namespace
}  // namespace mft

NB_MODULE(_core, m) {
  using namespace mft;
  using namespace nb::literals;
  m.doc() = "The mobile-ft training runtime.";
  start_executorch();  // kernels that run without a program would have it log

  const nb::exception<Error> failure(m, "RuntimeFailure", PyExc_ValueError);
  nb::exception<Busy>(m, "BusyError", failure);

  register_options(m);
  register_text(m);
  register_model(m);
  register_training(m);
  m.def("trust_key", &trust_key, nb::arg("pem"), "From now on bundles must be signed with this public key.");
  m.def("instruction_set", [] { return std::string(kernels().isa); }, "The instruction set of the kernels in use.");
  m.def("instruction_sets", &instruction_sets, "The instruction sets of this machine, the best one last.");
  m.def(
      "renamed",
      [] {
        std::map<std::string, std::string> names;
        for (const Renamed& renamed : kRenamed) names[renamed.before] = renamed.now;
        return names;
      },
      "{old name: new name} of renamed options and event keys.");
  m.def(
      "quantize",
      [](const Matrix& weight, const std::string& format, std::optional<Importance> importance) {
        return quantized(weight, format, importance ? importance->data() : nullptr,
                         importance ? importance->size() : weight.shape(1));
      },
      "weight"_a, "format"_a, "importance"_a = nb::none(),
      "W [rows, cols] packed in a format (docs/reference/bundle_format.md), with scales found by error search; "
      "`importance` [cols], above 0, weighs the errors of columns.");
  m.def(
      "process_memory",
      [] {
        const ProcessMemory memory = process_memory();
        return std::map<std::string, uint64_t>{
            {"rss", memory.rss}, {"anon", memory.anon}, {"peak_rss", memory.peak_rss}};
      },
      "Memory of this process in bytes, from the kernel.");
#ifdef MFT_PYTHON_KERNELS
  register_kernels(m.def_submodule("kernels"));
#endif
}
