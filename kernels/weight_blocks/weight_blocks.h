// Weights in blocks (common/formats/weight_codecs.h): decoded for what reads them, and encoded
// again after an update. The same bits on every device, whatever exec.threads is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/formats/weight_codecs.h"
#include "kernels/core/door.h"
#include "kernels/core/tensor.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

// y = the blocks' values, rounded to `to`.
//   blocks : kU8, the codec's bytes of y.numel() elements, a multiple of its block
//   y      : CPU kF32 or kF64, holding values of `to`; CUDA kF32 or kBF16, which `to` names
// Floor of an element: its share of a block and one y.
struct DecodeWeightsArgs {
  formats::WeightCodec codec = formats::WeightCodec::kQ80;
  TensorView blocks;
  TensorView y;
  DType to = DType::kF32;
};

// blocks = the codes of x.
//   x      : kF32 (CPU: or kF64, rounded to kF32)
//   blocks : as above; read too, if `keep`
//   keep   : groups keep their scales where those fit, and values are rounded stochastically, with
//            the words of key (seed, kStochasticRounding, step, 0, index, first_element + i). Else
//            every scale is new, and values are rounded to nearest
//   inputs : optional, on the tensors' device: its step is that of the key, and `step` is ignored
//   skip   : optional, one int32 on the tensors' device: if it is not 0 nothing is written
//   amax   : optional, one float on the tensors' device, raised to the largest magnitude of the new
//            values, rounded to `to`, by QuantView's rule (core/tensor.h)
struct EncodeWeightsArgs {
  formats::WeightCodec codec = formats::WeightCodec::kQ80;
  TensorView x;
  TensorView blocks;
  bool keep = false;
  uint64_t seed = 0;
  int64_t step = 1;
  uint32_t index = 0;
  uint64_t first_element = 0;
  const StepInputs* inputs = nullptr;
  const int32_t* skip = nullptr;
  float* amax = nullptr;
  DType to = DType::kBF16;
};

// Errors: kInvalidArgument (codec, counts, types; `to` neither kF32 nor kBF16).
absl::Status CanImplement(const DecodeWeightsArgs& args);
absl::Status CanImplement(const EncodeWeightsArgs& args);
absl::Status DecodeWeights(const Exec& exec, const DecodeWeightsArgs& args);
absl::Status EncodeWeights(const Exec& exec, const EncodeWeightsArgs& args);

HEARTH_DECLARE_VERSIONS(DecodeWeights, const DecodeWeightsArgs& args);
HEARTH_DECLARE_VERSIONS(EncodeWeights, const EncodeWeightsArgs& args);

}  // namespace hearth::kernels
