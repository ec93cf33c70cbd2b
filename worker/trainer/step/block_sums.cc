#include "worker/trainer/step/block_sums.h"

#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "kernels/gradient_parts/gradient_parts.h"
#include "kernels/round/round.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

absl::Status BlockSums::SumPart(const kernels::Exec& exec,
                                const TensorView& data,
                                const TensorView& part) {
  const int64_t ranks = comm_.world_size();
  const int64_t length = Part(data.numel());
  const int64_t scales = length / format_.block;
  const TensorView received = Slice(room_.received, 0, ranks * length);
  const TensorView received_scales = Slice(room_.received_scales, 0, ranks * scales);
  kernels::EncodePartsArgs encode;
  encode.x = data;
  encode.codes = Slice(room_.sent, 0, ranks * length);
  encode.scales = Slice(room_.sent_scales, 0, ranks * scales);
  HEARTH_RETURN_IF_ERROR(kernels::EncodeParts(exec, encode));
  HEARTH_RETURN_IF_ERROR(comm_.GroupBegin());
  HEARTH_RETURN_IF_ERROR(comm_.AllToAll(exec, encode.codes, received));
  HEARTH_RETURN_IF_ERROR(comm_.AllToAll(exec, encode.scales, received_scales));
  HEARTH_RETURN_IF_ERROR(comm_.GroupEnd());
  kernels::SumPartsArgs sum;
  sum.codes = TensorView(received.data, received.dtype, {ranks, length});
  sum.scales = TensorView(received_scales.data, received_scales.dtype, {ranks, scales});
  sum.y = part;
  return kernels::SumParts(exec, sum);
}

absl::Status BlockSums::ReduceScatter(const kernels::Exec& exec, const TensorView& data) {
  const int64_t length = Part(data.numel());
  if (length * comm_.world_size() != data.numel()) {
    return absl::InternalError("gradients do not divide into parts of whole blocks");
  }
  return SumPart(exec, data, Slice(data, comm_.rank() * length, length));
}

absl::Status BlockSums::AllReduce(const kernels::Exec& exec, const TensorView& data) {
  // The last parts may reach beyond the data, so the sums meet elsewhere.
  const int64_t length = Part(data.numel());
  const TensorView sums = Slice(room_.sums, 0, comm_.world_size() * length);
  HEARTH_RETURN_IF_ERROR(SumPart(exec, data, Slice(sums, comm_.rank() * length, length)));
  HEARTH_RETURN_IF_ERROR(comm_.AllGather(exec, sums));
  const TensorView whole = Slice(sums, 0, data.numel());
  if (whole.dtype == data.dtype) {
    return kernels::Copy(exec, data.data, whole.data, data.bytes());
  }
  kernels::WidenArgs widen;
  widen.x = whole;
  widen.y = data;
  return kernels::Widen(exec, widen);
}

int64_t BlockSums::PartBytes(int64_t elements) const {
  const int64_t all = comm_.world_size() * Part(elements);
  return kernels::DTypeBytes(format_.part, all) +
         kernels::DTypeBytes(DType::kE8M0, all / format_.block);
}

int64_t BlockSums::SumBytes(int64_t elements) const {
  return kernels::DTypeBytes(format_.sum, comm_.world_size() * Part(elements));
}

}  // namespace hearth::trainer
