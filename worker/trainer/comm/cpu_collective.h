// Tensor operations of the transports that move host memory.
#pragma once

#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

// Tensors in host memory through the operations on spans. Reduce-scatter is an all-reduce: neither
// Gloo nor a test's threads have anything better. Groups change nothing.
class CpuCollective : public Collective {
 public:
  using Collective::AllReduceMax;
  using Collective::AllReduceSum;

  absl::Status AllReduceSum(const kernels::Exec& exec, const kernels::TensorView& data) final;
  absl::Status AllReduceMax(const kernels::Exec& exec, const kernels::TensorView& data) final;
  absl::Status ReduceScatterSum(const kernels::Exec& exec, const kernels::TensorView& data) final;
  absl::Status AllGather(const kernels::Exec& exec, const kernels::TensorView& data) final;
  absl::Status AllToAll(const kernels::Exec& exec,
                        const kernels::TensorView& send,
                        const kernels::TensorView& receive) final;
  absl::Status GroupBegin() final { return absl::OkStatus(); }
  absl::Status GroupEnd() final { return absl::OkStatus(); }

 protected:
  // data: world_size() pieces of equal size, in place; not empty.
  virtual absl::Status AllGatherBytes(absl::Span<uint8_t> data) = 0;
  // The same of both, which do not overlap.
  virtual absl::Status AllToAllBytes(absl::Span<uint8_t> send, absl::Span<uint8_t> receive) = 0;
};

}  // namespace hearth::trainer
