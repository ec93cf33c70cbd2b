// The form of an operand that a quantised recipe leaves in BF16: a copy, packed on every device, so
// that it lives as long as the quantised forms do, whatever becomes of the plain tensor.
#pragma once

#include "absl/status/status.h"
#include "worker/trainer/precision/operand.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

// `plain`: the tensor [R, C]. `data`: R C elements; null: nobody wants it. Never waits.
absl::Status CopyPlain(const kernels::Exec& exec, const kernels::TensorView& plain, void* data);

// The same for those of the weights whose forms are copies.
absl::Status CopyPlainWeights(const kernels::Exec& exec,
                              const ScalingContext& context,
                              const WeightRange& weights);

// How a product reads the copy of a tensor [rows, cols]. `columns`: the tensor's transpose.
ProductOperand PlainCopy(void* data, int64_t rows, int64_t cols, bool columns);

}  // namespace hearth::trainer
