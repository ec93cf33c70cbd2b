#include "worker/trainer/pulse/watched_collective.h"

#include <utility>

namespace hearth::trainer {
namespace {

class WatchedCollective : public Collective {
 public:
  WatchedCollective(std::unique_ptr<Collective> inner, Pulse& pulse, Clock& clock)
      : inner_(std::move(inner)), pulse_(pulse), clock_(clock) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view transport() const override { return inner_->transport(); }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    const Wait wait(*this, "all-reduce of numbers");
    return inner_->AllReduceSum(data);
  }
  absl::Status AllReduceSum(absl::Span<double> data) override {
    const Wait wait(*this, "all-reduce of numbers");
    return inner_->AllReduceSum(data);
  }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override {
    const Wait wait(*this, "all-reduce of a maximum");
    return inner_->AllReduceMax(data);
  }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    const Wait wait(*this, "all-reduce of a maximum");
    return inner_->AllReduceMax(data);
  }
  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override {
    const Wait wait(*this, "broadcast");
    return inner_->Broadcast(data, root);
  }
  absl::Status Barrier() override {
    const Wait wait(*this, "barrier");
    return inner_->Barrier();
  }
  absl::Status AllReduceSum(const kernels::Exec& exec, const kernels::TensorView& data) override {
    const Wait wait(*this, "all-reduce of gradients");
    return inner_->AllReduceSum(exec, data);
  }
  absl::Status AllReduceMax(const kernels::Exec& exec, const kernels::TensorView& data) override {
    const Wait wait(*this, "all-reduce of control bits");
    return inner_->AllReduceMax(exec, data);
  }
  absl::Status ReduceScatterSum(const kernels::Exec& exec,
                                const kernels::TensorView& data) override {
    const Wait wait(*this, "reduce-scatter of gradients");
    return inner_->ReduceScatterSum(exec, data);
  }
  absl::Status AllGather(const kernels::Exec& exec, const kernels::TensorView& data) override {
    const Wait wait(*this, "all-gather of weights");
    return inner_->AllGather(exec, data);
  }
  absl::Status AllToAll(const kernels::Exec& exec,
                        const kernels::TensorView& send,
                        const kernels::TensorView& receive) override {
    const Wait wait(*this, "exchange of gradients");
    return inner_->AllToAll(exec, send, receive);
  }
  absl::Status GroupBegin() override { return inner_->GroupBegin(); }
  absl::Status GroupEnd() override {
    const Wait wait(*this, "group of collectives");
    return inner_->GroupEnd();
  }
  absl::Status Health() override { return inner_->Health(); }

 private:
  class Wait {
   public:
    Wait(WatchedCollective& of, const char* what)
        : of_(of), scope_(of.pulse_, Activity::kPeers, what), start_(of.clock_.Monotonic()) {}
    ~Wait() { of_.pulse_.Waited(of_.clock_.Monotonic() - start_); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    WatchedCollective& of_;
    const Pulse::Scope scope_;
    const absl::Duration start_;
  };

  const std::unique_ptr<Collective> inner_;
  Pulse& pulse_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<Collective> Watched(std::unique_ptr<Collective> inner, Pulse& pulse, Clock& clock) {
  return std::make_unique<WatchedCollective>(std::move(inner), pulse, clock);
}

}  // namespace hearth::trainer
