#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/alltoall.h"
#include "gloo/barrier.h"
#include "gloo/broadcast.h"
#include "worker/trainer/comm/cpu_collective.h"
#include "worker/trainer/comm/gloo/gloo_context.h"
#include "worker/trainer/comm/rendezvous/host_name.h"
#include "worker/trainer/comm/rendezvous/mesh.h"

namespace hearth::trainer {
namespace {

// Element-wise reductions in Gloo's untyped form.
template <typename T, T (*kOf)(T, T)>
void Combine(void* out, const void* a, const void* b, size_t n) {
  T* to = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) {
    to[i] = kOf(x[i], y[i]);
  }
}

template <typename T>
T SumOf(T x, T y) {
  return x + y;
}
template <typename T>
T MaxOf(T x, T y) {
  return std::max(x, y);
}

class GlooCollective : public CpuCollective {
 public:
  GlooCollective(std::shared_ptr<gloo::Context> context, std::string self)
      : context_(std::move(context)), self_(std::move(self)) {}

  using CpuCollective::AllReduceMax;
  using CpuCollective::AllReduceSum;

  int rank() const override { return context_->rank; }
  int world_size() const override { return context_->size; }
  std::string_view transport() const override { return "gloo"; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    return Reduce(data, Combine<float, SumOf<float>>);
  }
  absl::Status AllReduceSum(absl::Span<double> data) override {
    return Reduce(data, Combine<double, SumOf<double>>);
  }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override {
    return Reduce(data, Combine<int32_t, MaxOf<int32_t>>);
  }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    return Reduce(data, Combine<uint64_t, MaxOf<uint64_t>>);
  }

  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override {
    if (data.empty()) {
      return absl::OkStatus();
    }
    return Run("broadcast", data.size(), [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(data.data(), data.size());
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  absl::Status Barrier() override {
    return Run("barrier", 0, [&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

 protected:
  // Without an input Gloo takes this rank's piece from its place in the output.
  absl::Status AllGatherBytes(absl::Span<uint8_t> data) override {
    return Run("all-gather", data.size(), [&] {
      gloo::AllgatherOptions options(context_);
      options.setOutput(data.data(), data.size());
      gloo::allgather(options);
    });
  }

  absl::Status AllToAllBytes(absl::Span<uint8_t> send, absl::Span<uint8_t> receive) override {
    return Run("all-to-all", send.size(), [&] {
      gloo::AlltoallOptions options(context_);
      options.setInput(send.data(), send.size());
      options.setOutput(receive.data(), receive.size());
      gloo::alltoall(options);
    });
  }

 private:
  // The ring: which rank adds what in which order depends on the size and the world size alone.
  template <typename T>
  absl::Status Reduce(absl::Span<T> data, void (*op)(void*, const void*, const void*, size_t)) {
    if (data.empty()) {
      return absl::OkStatus();
    }
    return Run("all-reduce", data.size() * sizeof(T), [&] {
      gloo::AllreduceOptions options(context_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(op);
      gloo::allreduce(options);
    });
  }

  template <typename Operation>
  absl::Status Run(const char* name, size_t bytes, const Operation& operation) {
    HEARTH_RETURN_IF_ERROR(fault::Check("comm.collective"));
    try {
      operation();
      return absl::OkStatus();
    } catch (const std::exception& e) {
      const std::string text = absl::StrCat(self_, ": ", name, " of ", bytes, " bytes: ", e.what());
      // Gloo tells a timeout from a lost connection by its words alone.
      return absl::StrContains(text, "imed out") ? absl::DeadlineExceededError(text)
                                                 : absl::UnavailableError(text);
    }
  }

  const std::shared_ptr<gloo::Context> context_;
  const std::string self_;  // "rank 1 of 2 on host"
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewGlooCollective(const GlooOptions& options,
                                                              KeyValueStore& store) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.world_size));
  }
  if (options.world_size == 1) {
    return NewSoloCollective();
  }
  const std::string host = options.advertise_host.empty() ? "127.0.0.1" : options.advertise_host;
  const std::string self = absl::StrCat("rank ", options.rank, " of ", options.world_size, " on ",
                                        HostName(), " (", host, ")");
  MeshOptions mesh;
  mesh.rank = options.rank;
  mesh.world_size = options.world_size;
  mesh.host = host;
  mesh.gather_timeout = options.gather_timeout;
  mesh.connect_timeout = options.rendezvous_timeout;
  mesh.on_stranger = options.on_stranger;
  absl::StatusOr<std::vector<Socket>> sockets = ConnectMesh(mesh, store);
  if (absl::IsInvalidArgument(sockets.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(self, ": --advertise ", host,
                     " is not an address of this machine: ", sockets.status().message()));
  }
  if (!sockets.ok()) {
    return absl::Status(sockets.status().code(),
                        absl::StrCat(self, ": rendezvous: ", sockets.status().message()));
  }
  try {
    return std::unique_ptr<Collective>(std::make_unique<GlooCollective>(
        NewGlooContext(options.rank, *std::move(sockets), options.operation_timeout), self));
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat(self, ": rendezvous: ", e.what()));
  }
}

}  // namespace hearth::trainer
