// What every transport asks of the tensors it is given.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"

namespace hearth::trainer {

// kInvalidArgument, naming `op`, unless `data` may be summed on exec's device: kF32 or kF64, on a
// GPU also kBF16.
absl::Status RequireSummable(const kernels::Exec& exec,
                             const kernels::TensorView& data,
                             const char* op);
// Unless `data` is kI32.
absl::Status RequireMaximum(const kernels::TensorView& data, const char* op);
// Unless `data` divides into `world_size` equal pieces of whole elements and bytes.
absl::Status RequirePieces(const kernels::TensorView& data, int world_size, const char* op);
// Unless both divide so, and have one type and as many elements.
absl::Status RequireExchange(const kernels::TensorView& send,
                             const kernels::TensorView& receive,
                             int world_size,
                             const char* op);

}  // namespace hearth::trainer
