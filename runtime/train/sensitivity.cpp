/// DropBP's sensitivities (arXiv 2402.17812), measured on the device itself.

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/train/trainer.h"

namespace mft {

/// Every unit's input and the gradient of its output are on disk meanwhile: with a unit dropped, the gradient changes
/// below it alone, and starts there from its own output's. So do the gradients of keys and values that units share.
std::vector<double> Trainer::measure_sensitivities(const Batch& batch) {
  const size_t units = model_.bundle().units.size();
  const int64_t t = batch.size();
  const int64_t* positions = batch.positions.data();
  const size_t activation = static_cast<size_t>(t * model_.bundle().hidden_size);
  const size_t bytes = activation * sizeof(float);
  float* x = activations_.floats();
  float* y = x + activation;
  float* read_back = y + activation;
  const auto input_at = [&](size_t u) { return offload_offset(static_cast<int64_t>(u)); };
  const auto gradient_at = [&](size_t u) { return offload_offset(static_cast<int64_t>(units + u)); };
  const SideTensors& side = model_.side_tensors();
  const auto side_at = [&](size_t u) { return gradient_at(units) + u * side.gradient_bytes(); };

  compare_rows(batch);
  model_.embed(batch.tokens.data(), t, x);
  for (size_t u = 0; u < units; ++u) {
    offload_.write(input_at(u), x, bytes);
    model_.forward(u, x, positions, t, y);
    std::swap(x, y);
  }
  const double count = static_cast<double>(head(batch, x, y, units - 1).count);
  if (count == 0) fail("step ", steps_done() + 1, ": no targets to measure sensitivities on");

  /// dy -> dx, and the norm of each of the unit's LoRA gradients.
  const auto norms_of = [&](size_t u, float* dy, float* dx) {
    offload_.read(input_at(u), read_back, bytes);
    model_.scale(u, t, dy);
    UnitBackward call;
    call.tokens = t;
    call.dy = dy;
    call.x = read_back;
    call.positions = positions;
    call.dx = dx;
    call.gradients = gradients_.floats();
    call.spare = spare_gradients_.floats();
    model_.backward(u, call, u > 0 ? u - 1 : SIZE_MAX);
    std::vector<double> norms;
    for (const AdapterTensor& tensor : model_.layout().units[u]) {
      if (tensor.offset < trained(u).begin) continue;
      const float* gradient = gradients_.floats() + (tensor.offset - trained(u).begin);
      norms.push_back(std::sqrt(kernels().sum_of_squares(gradient, static_cast<int64_t>(tensor.size()))) / count);
    }
    return norms;
  };
  std::vector<std::vector<double>> norms(units);
  float* dy = y;
  float* dx = x;
  for (size_t u = units; u-- > 0;) {
    offload_.write(gradient_at(u), dy, bytes);
    if (side.gradient_bytes() > 0) offload_.write(side_at(u), side.gradients(), side.gradient_bytes());
    norms[u] = norms_of(u, dy, dx);
    std::swap(dy, dx);
  }

  std::vector<double> sensitivities(units);
  for (size_t dropped = 0; dropped < units; ++dropped) {
    for (const double norm : norms[dropped]) sensitivities[dropped] += norm * norm;
    offload_.read(gradient_at(dropped), dy, bytes);
    if (side.gradient_bytes() > 0) offload_.read(side_at(dropped), side.gradients(), side.gradient_bytes());
    model_.scale(dropped, t, dy);
    for (size_t u = dropped; u-- > 0;) {
      const std::vector<double> changed = norms_of(u, dy, dx);
      for (size_t i = 0; i < changed.size(); ++i) sensitivities[dropped] += std::pow(norms[u][i] - changed[i], 2);
      std::swap(dy, dx);
    }
  }
  for (const double sensitivity : sensitivities) {
    if (!std::isfinite(sensitivity)) fail("step ", steps_done() + 1, ": a sensitivity is not finite; lower lr");
  }
  return sensitivities;
}

}  // namespace mft
