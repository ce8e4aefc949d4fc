/// One micro-batch of a training step: forward through all units, loss, backward through those that the schedule runs.

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/train/trainer.h"

namespace mft {

LossSum Trainer::accumulate(const Batch& batch, const std::vector<bool>& selected, bool first,
                            const std::function<void(size_t)>& on_gradients) {
  if (batch.size() == 0 || batch.size() > config_.tokens()) {
    fail("a micro-batch of ", batch.size(), " tokens does not fit batch_size x seq_len");
  }
  if (static_cast<int64_t>(selected.size()) != selectable_.count() ||
      std::count(selected.begin(), selected.end(), true) > config_.schedule.most_selected(selectable_.count())) {
    fail("selected must have ", selectable_.count(), " flags, one per ", selectable_.units ? "unit" : "layer",
         ", and must not select more than the schedule selects");
  }
  if (!first && spare_gradients_.size() == 0)
    fail("accumulating gradients of several micro-batches requires grad_accum above 1");
  const std::vector<Kept> kept = keep(selected, batch);
  const size_t units = kept.size();
  compare_rows(batch);
  const float* x = forward(batch, kept);
  const LossSum loss = head(batch, x, buffer(batch, units + 1), next_below(kept, units));
  backward(batch, kept, first, on_gradients);
  return loss;
}

float* Trainer::buffer(const Batch& batch, size_t unit) const {
  return activations_.floats() + unit % 2 * activation_size(batch);
}

float* Trainer::input_of(const Batch& batch, const std::vector<Kept>& kept, size_t unit) const {
  const bool has_checkpoint = unit < kept.size() && kept[unit].checkpoint != nullptr;
  return has_checkpoint ? kept[unit].checkpoint : buffer(batch, unit);
}

size_t Trainer::next_below(const std::vector<Kept>& kept, size_t unit) {
  while (unit > 0) {
    if (kept[--unit].runs) return unit;
  }
  return SIZE_MAX;
}

const float* Trainer::forward(const Batch& batch, const std::vector<Kept>& kept) {
  const int64_t* positions = batch.positions.data();
  const int64_t t = batch.size();
  const auto input = [&](size_t unit) { return input_of(batch, kept, unit); };
  size_t unit = 0;
  if (prefix_ && !batch.sequences.empty()) {
    while (unit < kept.size() && !kept[unit].runs) ++unit;
  }
  if (unit > 0) {
    pass_prefix(batch, unit, input(unit));
  } else {
    model_.embed(batch.tokens.data(), t, input(0));
  }
  for (; unit < kept.size(); ++unit) {
    const Kept& k = kept[unit];
    if (k.offloaded >= 0) {
      offload_.write(offload_offset(k.offloaded), input(unit), activation_size(batch) * sizeof(float));
    }
    if (k.saved != nullptr) {
      model_.forward_save(unit, input(unit), positions, t, input(unit + 1), k.saved);
    } else {
      model_.forward(unit, input(unit), positions, t, input(unit + 1));
    }
  }
  return input(kept.size());
}

void Trainer::backward(const Batch& batch, const std::vector<Kept>& kept, bool first,
                       const std::function<void(size_t)>& on_gradients) {
  UnitBackward call;
  call.tokens = batch.size();
  call.positions = batch.positions.data();
  call.add = !first;
  call.spare = spare_gradients_.floats();
  // The head read its input from the one buffer and wrote its gradient to the other. Each unit swaps them.
  float* dy = buffer(batch, kept.size() + 1);
  float* dx = buffer(batch, kept.size());
  for (size_t unit = kept.size(); next_below(kept, unit) < unit;) {
    model_.scale(--unit, call.tokens, dy);
    const Kept& k = kept[unit];
    if (!k.runs) continue;
    call.x = k.offloaded >= 0 ? read_back(batch, k.offloaded) : k.checkpoint;
    call.saved = k.saved;
    call.dy = dy;
    call.dx = dx;
    call.gradients = k.selected ? gradients_.floats() + gradient_offsets_[unit] : nullptr;
    model_.backward(unit, call, next_below(kept, unit));
    if (k.selected && on_gradients) on_gradients(unit);
    std::swap(dy, dx);
    ++backward_runs_[unit];
  }
}

const float* Trainer::read_back(const Batch& batch, int64_t slot) {
  float* x = activations_.floats() + 2 * activation_size(batch);
  offload_.read(offload_offset(slot), x, activation_size(batch) * sizeof(float));
  return x;
}

std::vector<Trainer::Kept> Trainer::keep(const std::vector<bool>& selected, const Batch& batch) {
  const std::vector<bool> runs = config_.schedule.with_backward(selected);
  const auto& units = model_.bundle().units;
  const size_t activation = activation_size(batch);
  std::vector<Kept> kept(units.size());
  std::vector<int64_t> to_store = plan_.stored;
  int64_t checkpoints = plan_.checkpoints, offloaded = 0;
  std::byte* saved = saved_.bytes();
  int64_t gradients = 0;
  for (size_t u = units.size(); u-- > 0;) {
    Kept& k = kept[u];
    k.selected = selected[selectable_.of(u)];
    k.runs = runs[selectable_.of(u)];
    if (!k.runs) continue;
    const UnitKind& kind = model_.bundle().kind_of(u);
    int64_t& left = to_store[plan_.group_of(units[u])];
    if (left > 0) {
      --left;
      k.saved = saved;
      saved += model_.saved_bytes(kind, batch.size(), plan_.mlp_tokens);
      if (!kind.backward_reads_x) continue;
    }
    if (checkpoints > 0) {
      k.checkpoint = checkpoints_.floats() + activation * static_cast<size_t>(--checkpoints);
    } else {
      k.offloaded = offloaded++;
    }
  }
  for (size_t u = 0; u < units.size(); ++u) {
    gradient_offsets_[u] = !kept[u].selected ? -1 : config_.immediate_update() ? 0 : gradients;
    if (kept[u].selected) gradients += static_cast<int64_t>(trained(u).size());
  }
  return kept;
}

void Trainer::pass_prefix(const Batch& batch, size_t units, float* out) {
  const int64_t hidden = model_.bundle().hidden_size;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const int64_t sequence = batch.sequences[s].index;
    const int64_t begin = batch.sequences[s].begin;
    const int64_t t = (s + 1 < batch.sequences.size() ? batch.sequences[s + 1].begin : batch.size()) - begin;
    // After `u` units; `out` may be one of the buffers, that of an even or odd number of them as the caller has it.
    const auto after = [&](size_t u) { return (u == units ? out : buffer(batch, u)) + begin * hidden; };
    const size_t passed = prefix_->passed(sequence);
    if (passed > 0) {
      prefix_->read(sequence, after(passed));
    } else {
      model_.embed(batch.tokens.data() + begin, t, after(0));
    }
    for (size_t u = passed; u < units; ++u) {
      model_.forward(u, after(u), batch.positions.data() + begin, t, after(u + 1));
    }
    if (passed < units) prefix_->write(sequence, units, after(units));
  }
}

void Trainer::compare_rows(const Batch& batch) {
  float* x = activations_.floats();
  compared_ = compare(model_, batch, config_.loss, data_, references_ ? &*references_ : nullptr, x,
                      x + config_.tokens() * model_.bundle().hidden_size);
}

LossSum Trainer::head(const Batch& batch, const float* x, float* dx, size_t next) {
  losses_of_tokens_.resize(static_cast<size_t>(batch.size()));
  model_.head(x, batch.targets.data(), batch.size(), losses_of_tokens_.data(), dx, next);
  return loss_of(batch, losses_of_tokens_, compared_, config_, {dx, model_.bundle().hidden_size});
}

}  // namespace mft
