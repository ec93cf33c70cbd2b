// World of one; every operation is the identity, or a copy where it is not in place.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cuda/device.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/tensor_checks.h"

namespace hearth::trainer {

class SoloCollective : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string_view transport() const override { return "none"; }
  absl::Status AllReduceSum(absl::Span<float>) override { return absl::OkStatus(); }
  absl::Status AllReduceSum(absl::Span<double>) override { return absl::OkStatus(); }
  absl::Status AllReduceMax(absl::Span<int32_t>) override { return absl::OkStatus(); }
  absl::Status AllReduceMax(absl::Span<uint64_t>) override { return absl::OkStatus(); }
  absl::Status Broadcast(absl::Span<uint8_t>, int) override { return absl::OkStatus(); }
  absl::Status Barrier() override { return absl::OkStatus(); }

  // Takes tensors of any device.
  absl::Status AllReduceSum(const kernels::Exec& exec, const kernels::TensorView& data) override {
    return RequireSummable(exec, data, "all-reduce");
  }
  absl::Status AllReduceMax(const kernels::Exec&, const kernels::TensorView& data) override {
    return RequireMaximum(data, "all-reduce (max)");
  }
  absl::Status ReduceScatterSum(const kernels::Exec& exec,
                                const kernels::TensorView& data) override {
    return RequireSummable(exec, data, "reduce-scatter");
  }
  absl::Status AllGather(const kernels::Exec&, const kernels::TensorView& data) override {
    return RequirePieces(data, 1, "all-gather");
  }
  absl::Status AllToAll(const kernels::Exec& exec,
                        const kernels::TensorView& send,
                        const kernels::TensorView& receive) override {
    const absl::Status fits = RequireExchange(send, receive, 1, "all-to-all");
    return fits.ok() ? kernels::Copy(exec, receive.data, send.data, send.bytes()) : fits;
  }
  absl::Status GroupBegin() override { return absl::OkStatus(); }
  absl::Status GroupEnd() override { return absl::OkStatus(); }
};

}  // namespace hearth::trainer
