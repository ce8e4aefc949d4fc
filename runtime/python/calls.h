#pragma once

// What calls from Python into the runtime share: arrays, the check that a model takes one call at a time, callbacks.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/model/model.h"

namespace nb = nanobind;

namespace mft {

using Tokens = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, float>;

inline Array array(std::vector<float>&& values, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<float>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return Array(owned->data(), shape, owner);
}

inline void check_tokens(const Model& model, const Tokens& tokens, const Tokens& positions) {
  if (tokens.shape(0) != positions.shape(0)) fail("tokens and positions must have the same length");
  for (size_t i = 0; i < tokens.shape(0); ++i) {
    if (tokens.data()[i] < 0 || tokens.data()[i] >= model.bundle().vocab_size) {
      fail("token ", tokens.data()[i], " is not in the vocabulary of ", model.bundle().vocab_size);
    }
  }
}

/// A call that computes with a model, while other Python threads run. Throws Busy if another call is in progress on it.
class Working {
 public:
  explicit Working(const Model& model) : call_(model.begin_call()) {}

 private:
  Exclusive::Call call_;
  nb::gil_scoped_release released_;
};

/// Calls Python from within the runtime: an exception there, Ctrl-C too, is kept for later.
class Callback {
 public:
  /// False where Python raised, now or before.
  template <typename Body>
  bool call(const Body& body) {
    nb::gil_scoped_acquire acquired;
    if (raised_) return false;
    try {
      body();
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      raised_ = std::current_exception();
    }
    return !raised_;
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::exception_ptr raised_;
};

}  // namespace mft
