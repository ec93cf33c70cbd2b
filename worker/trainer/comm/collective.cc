#include "worker/trainer/comm/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/trainer/comm/tensor_checks.h"

namespace hearth::trainer {
namespace {

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
  absl::Status GroupBegin() override { return absl::OkStatus(); }
  absl::Status GroupEnd() override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<Collective> NewSoloCollective() {
  return std::make_unique<SoloCollective>();
}

absl::StatusOr<std::string> BroadcastString(Collective& comm, std::string_view text, int root) {
  uint64_t size = comm.rank() == root ? text.size() : 0;
  HEARTH_RETURN_IF_ERROR(
      comm.Broadcast(absl::MakeSpan(reinterpret_cast<uint8_t*>(&size), sizeof size), root));
  std::string result(comm.rank() == root ? text : std::string_view());
  result.resize(size);
  if (size > 0) {
    HEARTH_RETURN_IF_ERROR(
        comm.Broadcast(absl::MakeSpan(reinterpret_cast<uint8_t*>(result.data()), size), root));
  }
  return result;
}

}  // namespace hearth::trainer
