#pragma once

// A mixture of experts: each token's output is the weighted sum of what a few experts, which are gated MLPs, make of
// it. Experts compute on the tokens that chose them, packed together. The weights of an expert that none chose are not
// read.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/platform/scratch.h"

namespace mft {

struct ExpertsShape {
  int64_t t;
  int64_t hidden;  // of x; a multiple of 16
  int64_t inner;   // of an expert; a multiple of 16
  int64_t experts;
  int64_t top_k;   // experts that a token chooses, at most `experts`
  bool sigmoid;    // whether scores are sigmoids of the logits, instead of their softmax
  bool normalize;  // whether the scores of a token's experts are divided by their sum
  float scale;     // of the scores
  int64_t rank;    // of LoRA on the experts; 0: they have none
};

// LoRA of each expert's part of a matrix. The layout is that of PEFT's files: the columns of B alternate between
// experts.
struct ExpertsLora {
  const float* a;  // [experts x rank, K]
  const float* b;  // [rows of an expert, rank x experts]
};

struct ExpertsLoraGradients {
  float* a;  // null if A is not trained
  float* b;
};

struct ExpertsInput {
  const float* x;              // [T, hidden]
  const float* logits;         // [T, experts]
  const float* bias;           // [experts], added to the scores for the choice alone; may be null
  PackedWeight gate_up;        // [experts x 2 inner, hidden]: of each expert the gate, then the other factor
  PackedWeight down;           // [experts x hidden, inner]
  ExpertsLora gate_up_lora{};  // null without LoRA
  ExpertsLora down_lora{};
  float lora_scale = 0.f;
};

namespace MFT_ISA {

// y [T, hidden]. Of equal scores, the expert with the lower number is chosen.
void experts_forward(Compute compute, const ExpertsShape& shape, const ExpertsInput& in, float* y, Scratch scratch);

// Gradients for dy [T, hidden]: dx, without the part through the logits, dlogits, and those of LoRA if the shape has a
// rank. The experts' inner values are computed again.
void experts_backward(Compute compute, const ExpertsShape& shape, const ExpertsInput& in, const float* dy, float* dx,
                      float* dlogits, const ExpertsLoraGradients& gate_up, const ExpertsLoraGradients& down,
                      Scratch scratch);

// Of both, for at most this t.
size_t experts_scratch_bytes(Compute compute, const ExpertsShape& shape);

}  // namespace MFT_ISA
}  // namespace mft
