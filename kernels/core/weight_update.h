// What the steps of all optimizers know of a weight and of the step; each adds what is its own.
#pragma once

#include <cstdint>

#include "kernels/core/formats.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

struct StepInputs;

// A parameter tensor, a shard or a piece of one. T is the arithmetic's type: that of the gradient
// on the CPU (kF32 or kF64), kF32 on CUDA.
struct UpdatedWeight {
  TensorView master;      // updated; kF32 or kBF16 (CPU: T or kBF16), rounded as UpdateArgs says
  TensorView working;     // the stored master rounded to round_working (CPU: T) or A; may be a
                          // master of the same type; optional
  double lr_scale = 1.0;  // multiplies lr
  double weight_decay = 0.0;  // 0 for norms, biases, ...
  float* amax = nullptr;      // optional, one float on the tensors' device: raised to max |working|
                              // by QuantView's rule (core/tensor.h)
  uint32_t index = 0;         // number of the tensor in the model, < 2^24: in the key of its
                              // randomness
  uint64_t first_element = 0;  // the place of these elements in the tensor
};

// skip       : optional, one int32 on the tensors' device: if it is not 0 nothing is written at all
// inputs     : optional, on the tensors' device; then the learning rate, the step of the randomness
//              and what the optimizer says are its, and lr and step are ignored
// stochastic_rounding : bf16 masters are rounded up with the probability of the part cut off, else
//              to nearest even; key (seed, kStochasticRounding, step, 0, tensor index, element), so
//              that an element's random numbers do not depend on which optimizer updates it, in
//              which piece. On the CPU so are wide masters that are the working copy and
//              round_working is kBF16
struct UpdateArgs {
  double lr = 0.0;
  int64_t step = 1;
  const int32_t* skip = nullptr;
  DType round_working = DType::kF32;
  const StepInputs* inputs = nullptr;
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

}  // namespace hearth::kernels
