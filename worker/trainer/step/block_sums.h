// Sums of gradients over the ranks in a format with blocks (common/formats/reduce_formats.h):
//
//   own gradients    | part 0 | part 1 | part 2 |   coded, each with scales of its own
//   all-to-all       rank r gets every rank's part r
//   own part         sum in FP32 in the order of the ranks, rounded to BF16
//   all-gather       of these sums, where each rank needs all
#pragma once

#include "absl/status/status.h"
#include "common/formats/reduce_formats.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/gradient_sums.h"

namespace hearth::trainer {

// Collective and memory outlive it.
class BlockSums : public GradientSums {
 public:
  // `room`: of Engine::reduction(), for the largest tensor that is summed.
  BlockSums(const formats::ReduceFormatRow& format, const ReductionTensors& room, Collective& comm)
      : format_(format), room_(room), comm_(comm) {}

  // `data` is whole blocks.
  absl::Status AllReduce(const kernels::Exec& exec, const kernels::TensorView& data) override;
  // Each part of `data` is whole blocks, else kInternal. The other parts stay as they are.
  absl::Status ReduceScatter(const kernels::Exec& exec, const kernels::TensorView& data) override;

  int64_t PartBytes(int64_t elements) const override;
  int64_t SumBytes(int64_t elements) const override;

 private:
  int64_t Part(int64_t elements) const {
    return formats::PartElements(elements, comm_.world_size());
  }
  // Into `part`: this rank's part of the sums of `data`.
  absl::Status SumPart(const kernels::Exec& exec,
                       const kernels::TensorView& data,
                       const kernels::TensorView& part);

  const formats::ReduceFormatRow format_;
  const ReductionTensors room_;
  Collective& comm_;
};

}  // namespace hearth::trainer
