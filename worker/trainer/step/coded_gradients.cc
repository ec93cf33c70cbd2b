#include "worker/trainer/step/coded_gradients.h"

#include <cstdint>

#include "common/base/status_macros.h"
#include "common/formats/reduce_formats.h"
#include "kernels/gradient_parts/gradient_parts.h"

namespace hearth::trainer {

using kernels::TensorView;

// Buckets begin at multiples of kTensorAlignElements for each rank, which is whole blocks.
static_assert(spec::kTensorAlignElements % formats::kReduceBlock == 0);

TensorView CodedGradients::Codes(size_t b) const {
  const int64_t begin = engine().gradient_buckets()[b].begin / engine().shards();
  return Slice(engine().gradient_codes(), begin,
               engine().parameters().owned_gradients()[b].numel());
}

TensorView CodedGradients::Scales(size_t b) const {
  const int64_t begin = engine().gradient_buckets()[b].begin / engine().shards();
  return Slice(engine().gradient_scales(), begin / formats::kReduceBlock,
               Codes(b).numel() / formats::kReduceBlock);
}

absl::Status CodedGradients::Take(const kernels::Exec& exec, size_t b) {
  HEARTH_RETURN_IF_ERROR(AddSquares(exec, b));
  return kernels::EncodeParts(exec,
                              {engine().parameters().owned_gradients()[b], Codes(b), Scales(b)});
}

absl::Status CodedGradients::UpdateAll(const kernels::Exec& exec) {
  for (size_t b = 0; b < engine().gradient_buckets().size(); ++b) {
    const TensorView codes = Codes(b);
    const TensorView scales = Scales(b);
    // The sum of one part: a code times its scale, which BF16 holds exactly.
    kernels::SumPartsArgs decode;
    decode.codes = TensorView(codes.data, codes.dtype, {1, codes.numel()});
    decode.scales = TensorView(scales.data, scales.dtype, {1, scales.numel()});
    decode.y = engine().parameters().owned_gradients()[b];
    HEARTH_RETURN_IF_ERROR(kernels::SumParts(exec, decode));
    HEARTH_RETURN_IF_ERROR(engine().optimizer(b).Step(exec, Update()));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
