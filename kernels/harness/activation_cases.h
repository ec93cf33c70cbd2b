// The cases that activation functions share: plain and quantised outputs, block forms, an input
// that waits for backward in 8 bits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/core/activation.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

// What a backward call of an activation function writes, and the kept input that it reads.
struct ActivationGradient {
  TensorView dx;
  QuantView dx_quant;
  BlockQuantView dx_blocks;
  KeptInput kept;
};

// An activation function: what its buffers are called and how it is run. Its other buffers are "y"
// and "dy" [N, F]; whatever else its calls read is in `parameters`.
struct ActivationCalls {
  const char* op = nullptr;
  const char* input = nullptr;     // [N, parts * F]
  const char* gradient = nullptr;  // of input, in its shape
  int64_t parts = 1;
  std::vector<BufferSpec> parameters;
  double spread = 1.0;  // standard deviation of the input
  // FP8 formats of ActivationKeptCase: of y's rows as forward keeps, and of the gradient.
  DType rows_dtype = DType::kE4M3;
  DType gradient_dtype = DType::kE5M2;
  std::function<absl::Status(const Exec&, const Buffers&, const ActivationOutputs&)> forward;
  std::function<absl::Status(const Exec&, const Buffers&, const ActivationGradient&)> backward;
};

// Plain outputs, compared with double and by finite differences. `quant`: FP8 forms beside them
// and, unless the case is only timed, a second copy that is made without a plain output. `y` is the
// shape of y.
OpCase ActivationCase(const ActivationCalls& calls, const MatrixShape& y, bool quant);

// Block forms of y and of the gradient. `kept`: forward keeps its input too, backward reads that.
OpCase ActivationBlockCase(const ActivationCalls& calls,
                           const MatrixShape& y,
                           const BlockStyle& y_style,
                           const BlockStyle& gradient,
                           bool kept);

// Forward keeps its input; then "y_again" and the gradient come from what it kept, with FP8 forms.
// What training calls, FP8 forms without plain outputs, comes second and is the same. Timed, there
// is nothing but that.
OpCase ActivationKeptCase(const ActivationCalls& calls, const MatrixShape& y);

// y of kept zeros, subnormals, largest values, infinities and NaN (kept_extremes.h) is near
// want(the parts of the input).
OpCase ActivationExtremesCase(const ActivationCalls& calls,
                              int64_t N,
                              int64_t F,
                              const std::function<double(const std::vector<double>&)>& want);

}  // namespace hearth::kernels::harness
