#include "runtime/core/train_config.h"

#include <cmath>

#include "runtime/core/error.h"

namespace mft {

void check(const TrainConfig& c, int64_t max_seq_len) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail(name, " ", value, ": must be at least 1");
  };
  positive("steps", c.steps);
  positive("seq-len", c.seq_len);
  positive("batch-size", c.batch_size);
  positive("grad-accum", c.grad_accum);
  if (c.warmup_steps < 0) fail("warmup-steps ", c.warmup_steps, ": must not be negative");
  if (!(c.lr > 0) || !std::isfinite(c.lr)) fail("lr ", c.lr, ": must be above 0");
  if (!(c.weight_decay >= 0)) fail("weight-decay ", c.weight_decay, ": must not be negative");
  if (!(c.max_grad_norm >= 0)) fail("max-grad-norm ", c.max_grad_norm, ": must not be negative; 0 is no clipping");
  if (c.seq_len > max_seq_len || c.batch_size > max_seq_len / c.seq_len) {
    fail("batch-size ", c.batch_size, " x seq-len ", c.seq_len, " tokens; the bundle's maximum is ", max_seq_len,
         " (export with a larger --max-seq-len)");
  }
}

}  // namespace mft
