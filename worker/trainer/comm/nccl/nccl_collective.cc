#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/time/clock.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/nccl/nccl_communicator.h"
#include "worker/trainer/comm/rendezvous/backoff.h"
#include "worker/trainer/comm/rendezvous/host_name.h"
#include "worker/trainer/comm/tensor_checks.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

// Spans of the host go through the device in pieces of this size.
constexpr size_t kStagingBytes = size_t{1} << 20;
constexpr char kIdKey[] = "nccl/id";

// NCCL's name of a type that may be summed.
ncclDataType_t NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
}

std::string OfBytes(const char* what, size_t bytes) {
  return absl::StrCat(what, " of ", bytes, " bytes");
}

class NcclCollective : public Collective {
 public:
  NcclCollective(std::unique_ptr<NcclCommunicator> comm, int rank, int world_size)
      : comm_(std::move(comm)), rank_(rank), world_size_(world_size) {}
  ~NcclCollective() override;

  absl::Status PrepareStaging(kernels::CudaContext& cuda);

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string_view transport() const override { return "nccl"; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    return ReduceSpan(data, ncclFloat32, ncclSum);
  }
  absl::Status AllReduceSum(absl::Span<double> data) override {
    return ReduceSpan(data, ncclFloat64, ncclSum);
  }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override {
    return ReduceSpan(data, ncclInt32, ncclMax);
  }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    return ReduceSpan(data, ncclUint64, ncclMax);
  }
  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override;
  absl::Status Barrier() override;

  absl::Status AllReduceSum(const kernels::Exec& exec, const kernels::TensorView& data) override;
  absl::Status AllReduceMax(const kernels::Exec& exec, const kernels::TensorView& data) override;
  absl::Status ReduceScatterSum(const kernels::Exec& exec,
                                const kernels::TensorView& data) override;
  absl::Status AllGather(const kernels::Exec& exec, const kernels::TensorView& data) override;
  absl::Status AllToAll(const kernels::Exec& exec,
                        const kernels::TensorView& send,
                        const kernels::TensorView& receive) override;
  absl::Status GroupBegin() override;
  absl::Status GroupEnd() override;
  absl::Status Health() override;

 private:
  template <typename T>
  absl::Status ReduceSpan(absl::Span<T> data, ncclDataType_t type, ncclRedOp_t op);
  // Both in pieces of `bytes`.
  ncclResult_t SendAndReceive(uint8_t* send, uint8_t* receive, size_t bytes, cudaStream_t stream);
  // Copies to the device, `launch`, copies back, waits.
  template <typename Launch>
  absl::Status ThroughDevice(const std::string& what, void* data, size_t bytes, Launch launch);
  template <typename Launch>
  absl::Status Start(const std::string& what, Launch launch);
  absl::Status AwaitStream(const std::string& what);
  absl::Status CheckCuda(cudaError_t error, const std::string& what);

  const Nccl& nccl() const { return comm_->nccl(); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_); }

  const std::unique_ptr<NcclCommunicator> comm_;
  const int rank_;
  const int world_size_;
  bool in_group_ = false;
  // Used by the operations on spans.
  void* stream_ = nullptr;
  void* device_ = nullptr;  // kStagingBytes
  void* pinned_ = nullptr;  // kStagingBytes
};

NcclCollective::~NcclCollective() {
  if (in_group_) {  // somebody left after an error
    nccl().GroupEnd();
    static_cast<void>(comm_->Fail(absl::StatusCode::kInternal, "group", "it was not ended"));
  }
  // Memory that an aborted kernel may still write to is not freed: that would wait for the kernel.
  if (comm_->Close()) {
    if (device_ != nullptr) {
      kernels::FreeDevice(device_);
    }
    if (pinned_ != nullptr) {
      kernels::FreePinned(pinned_);
    }
    if (stream_ != nullptr) {
      kernels::DeleteStream(stream_);
    }
  }
}

absl::Status NcclCollective::PrepareStaging(kernels::CudaContext& cuda) {
  HEARTH_ASSIGN_OR_RETURN(stream_, kernels::NewStream(cuda));
  HEARTH_ASSIGN_OR_RETURN(device_, kernels::AllocateDevice(cuda, kStagingBytes));
  HEARTH_ASSIGN_OR_RETURN(pinned_, kernels::AllocatePinned(kStagingBytes));
  return absl::OkStatus();
}

absl::Status NcclCollective::CheckCuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();
  return comm_->Fail(absl::StatusCode::kInternal, what,
                     absl::StrCat(cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

// A communicator that never blocks takes one call at a time: the next may follow when this one's
// work has been handed to the GPU.
template <typename Launch>
absl::Status NcclCollective::Start(const std::string& what, Launch launch) {
  HEARTH_RETURN_IF_ERROR(comm_->failure());
  HEARTH_RETURN_IF_ERROR(fault::Check("comm.collective"));
  const ncclResult_t result = launch();
  if (in_group_ && (result == ncclSuccess || result == ncclInProgress)) {
    return absl::OkStatus();
  }
  if (in_group_) {  // else this thread's later calls would go into a group that nobody ends
    in_group_ = false;
    nccl().GroupEnd();
  }
  return comm_->Settle(result, what);
}

absl::Status NcclCollective::AwaitStream(const std::string& what) {
  const absl::Duration deadline = Clock::Real().Monotonic() + comm_->timeout();
  Backoff backoff;
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream());
    if (state != cudaErrorNotReady) {
      return CheckCuda(state, what);
    }
    cudaGetLastError();  // else the next launch would report it as its own
    HEARTH_RETURN_IF_ERROR(comm_->Health(what));
    if (Clock::Real().Monotonic() > deadline) {
      return comm_->Fail(absl::StatusCode::kDeadlineExceeded, what, "the peers did not take part");
    }
    backoff.Pause();
  }
}

template <typename Launch>
absl::Status NcclCollective::ThroughDevice(const std::string& what,
                                           void* data,
                                           size_t bytes,
                                           Launch launch) {
  HEARTH_RETURN_IF_ERROR(comm_->failure());
  // By pinned memory: a copy from other memory would hold the thread up, which could then not see
  // that a peer is lost.
  std::memcpy(pinned_, data, bytes);
  HEARTH_RETURN_IF_ERROR(
      CheckCuda(cudaMemcpyAsync(device_, pinned_, bytes, cudaMemcpyHostToDevice, stream()), what));
  HEARTH_RETURN_IF_ERROR(Start(what, launch));
  HEARTH_RETURN_IF_ERROR(
      CheckCuda(cudaMemcpyAsync(pinned_, device_, bytes, cudaMemcpyDeviceToHost, stream()), what));
  HEARTH_RETURN_IF_ERROR(AwaitStream(what));
  std::memcpy(data, pinned_, bytes);
  return absl::OkStatus();
}

template <typename T>
absl::Status NcclCollective::ReduceSpan(absl::Span<T> data, ncclDataType_t type, ncclRedOp_t op) {
  constexpr size_t kPiece = kStagingBytes / sizeof(T);
  const std::string what = OfBytes("all-reduce", data.size() * sizeof(T));
  // Every rank has the same count, so all take the same pieces in the same order.
  for (size_t at = 0; at < data.size(); at += kPiece) {
    const size_t count = std::min(kPiece, data.size() - at);
    HEARTH_RETURN_IF_ERROR(ThroughDevice(what, data.data() + at, count * sizeof(T), [&] {
      return nccl().AllReduce(device_, device_, count, type, op, comm_->get(), stream());
    }));
  }
  return absl::OkStatus();
}

absl::Status NcclCollective::Broadcast(absl::Span<uint8_t> data, int root) {
  const std::string what = OfBytes("broadcast", data.size());
  for (size_t at = 0; at < data.size(); at += kStagingBytes) {
    const size_t count = std::min(kStagingBytes, data.size() - at);
    HEARTH_RETURN_IF_ERROR(ThroughDevice(what, data.data() + at, count, [&] {
      return nccl().Broadcast(device_, device_, count, ncclUint8, root, comm_->get(), stream());
    }));
  }
  return absl::OkStatus();
}

absl::Status NcclCollective::Barrier() {
  // NCCL has no barrier. A reduction ends nowhere before all have begun it.
  int32_t nothing = 0;
  return ThroughDevice("barrier", &nothing, sizeof(nothing), [&] {
    return nccl().AllReduce(device_, device_, 1, ncclInt32, ncclMax, comm_->get(), stream());
  });
}

absl::Status NcclCollective::AllReduceSum(const kernels::Exec& exec,
                                          const kernels::TensorView& data) {
  constexpr char kOp[] = "all-reduce";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCuda(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireSummable(exec, data, kOp));
  if (data.numel() == 0) {
    return absl::OkStatus();
  }
  return Start(OfBytes(kOp, data.bytes()), [&] {
    return nccl().AllReduce(data.data, data.data, static_cast<size_t>(data.numel()),
                            NcclType(data.dtype), ncclSum, comm_->get(),
                            static_cast<cudaStream_t>(exec.stream));
  });
}

absl::Status NcclCollective::AllReduceMax(const kernels::Exec& exec,
                                          const kernels::TensorView& data) {
  constexpr char kOp[] = "all-reduce (max)";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCuda(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireMaximum(data, kOp));
  if (data.numel() == 0) {
    return absl::OkStatus();
  }
  return Start(OfBytes(kOp, data.bytes()), [&] {
    return nccl().AllReduce(data.data, data.data, static_cast<size_t>(data.numel()), ncclInt32,
                            ncclMax, comm_->get(), static_cast<cudaStream_t>(exec.stream));
  });
}

absl::Status NcclCollective::ReduceScatterSum(const kernels::Exec& exec,
                                              const kernels::TensorView& data) {
  constexpr char kOp[] = "reduce-scatter";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCuda(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireSummable(exec, data, kOp));
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size_, kOp));
  if (data.numel() == 0) {
    return absl::OkStatus();
  }
  const size_t piece_bytes = data.bytes() / static_cast<size_t>(world_size_);
  // In place for NCCL: the result lies where this rank's piece lay.
  void* const own = data.as<uint8_t>() + static_cast<size_t>(rank_) * piece_bytes;
  return Start(OfBytes(kOp, data.bytes()), [&] {
    return nccl().ReduceScatter(data.data, own, static_cast<size_t>(data.numel() / world_size_),
                                NcclType(data.dtype), ncclSum, comm_->get(),
                                static_cast<cudaStream_t>(exec.stream));
  });
}

absl::Status NcclCollective::AllGather(const kernels::Exec& exec, const kernels::TensorView& data) {
  constexpr char kOp[] = "all-gather";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCuda(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size_, kOp));
  if (data.numel() == 0) {
    return absl::OkStatus();
  }
  const size_t piece_bytes = data.bytes() / static_cast<size_t>(world_size_);
  const void* const own = data.as<uint8_t>() + static_cast<size_t>(rank_) * piece_bytes;
  return Start(OfBytes(kOp, data.bytes()), [&] {
    return nccl().AllGather(own, data.data, piece_bytes, ncclUint8, comm_->get(),
                            static_cast<cudaStream_t>(exec.stream));
  });
}

// NCCL has an all-to-all only since 2.28; sends and receives in one group are the same.
ncclResult_t NcclCollective::SendAndReceive(uint8_t* send,
                                            uint8_t* receive,
                                            size_t bytes,
                                            cudaStream_t stream) {
  // A group within one that is open is part of that.
  ncclResult_t result = nccl().GroupStart();
  if (result != ncclSuccess) {
    return result;
  }
  const auto goes_on = [&result] { return result == ncclSuccess || result == ncclInProgress; };
  for (int peer = 0; peer < world_size_ && goes_on(); ++peer) {
    const size_t at = static_cast<size_t>(peer) * bytes;
    result = nccl().Send(send + at, bytes, ncclUint8, peer, comm_->get(), stream);
    if (goes_on()) {
      result = nccl().Recv(receive + at, bytes, ncclUint8, peer, comm_->get(), stream);
    }
  }
  // After an error too: later calls of this thread would go into a group that nobody ends.
  const ncclResult_t ended = nccl().GroupEnd();
  return goes_on() ? ended : result;
}

absl::Status NcclCollective::AllToAll(const kernels::Exec& exec,
                                      const kernels::TensorView& send,
                                      const kernels::TensorView& receive) {
  constexpr char kOp[] = "all-to-all";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCuda(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireExchange(send, receive, world_size_, kOp));
  if (send.numel() == 0) {
    return absl::OkStatus();
  }
  return Start(OfBytes(kOp, send.bytes()), [&] {
    return SendAndReceive(send.as<uint8_t>(), receive.as<uint8_t>(),
                          send.bytes() / static_cast<size_t>(world_size_),
                          static_cast<cudaStream_t>(exec.stream));
  });
}

absl::Status NcclCollective::GroupBegin() {
  HEARTH_RETURN_IF_ERROR(comm_->failure());
  if (in_group_) {
    return absl::FailedPreconditionError("a group of collectives is already open");
  }
  HEARTH_RETURN_IF_ERROR(comm_->Settle(nccl().GroupStart(), "group"));
  in_group_ = true;
  return absl::OkStatus();
}

absl::Status NcclCollective::GroupEnd() {
  HEARTH_RETURN_IF_ERROR(comm_->failure());
  if (!in_group_) {
    return absl::FailedPreconditionError("no group of collectives is open");
  }
  in_group_ = false;
  return comm_->Settle(nccl().GroupEnd(), "group");
}

absl::Status NcclCollective::Health() {
  HEARTH_RETURN_IF_ERROR(comm_->failure());
  return comm_->Health("the step");  // short: a std::string without memory of its own
}

// Every rank says that it is there, so that whoever waits in vain can say for whom; rank 0 gives
// the communicator's id.
absl::StatusOr<ncclUniqueId> Meet(const Nccl& nccl,
                                  const NcclOptions& options,
                                  KeyValueStore& store) {
  const absl::Duration deadline = Clock::Real().Monotonic() + options.gather_timeout;
  const auto left = [deadline] {
    return std::max(deadline - Clock::Real().Monotonic(), absl::Milliseconds(1));
  };
  const auto arrival = [](int rank) { return absl::StrCat("nccl/rank/", rank); };
  ncclUniqueId id = {};
  if (options.rank == 0) {
    if (const ncclResult_t result = nccl.GetUniqueId(&id); result != ncclSuccess) {
      return absl::UnavailableError(absl::StrCat(
          "NCCL ", nccl.VersionText(), " gives no id: ", nccl.GetErrorString(result), " (",
          nccl.GetLastError(nullptr), "); is NCCL_SOCKET_IFNAME an interface of this machine?"));
    }
    // Before the arrival below: a rank that has seen all arrivals finds the id.
    HEARTH_RETURN_IF_ERROR(store.Put(kIdKey, std::string_view(id.internal, sizeof(id.internal))));
  }
  HEARTH_RETURN_IF_ERROR(store.Put(arrival(options.rank), options.host));
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank == options.rank) {
      continue;
    }
    if (const auto came = store.Wait(arrival(rank), left()); !came.ok()) {
      return absl::Status(came.status().code(),
                          absl::StrCat("rank ", rank, " did not come: ", came.status().message()));
    }
  }
  if (options.rank == 0) {
    return id;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, store.Wait(kIdKey, left()));
  if (text.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(absl::StrCat("rank 0's NCCL id has ", text.size(),
                                                   " bytes, not ", sizeof(id.internal),
                                                   ": rank 0 runs another NCCL version"));
  }
  std::memcpy(id.internal, text.data(), sizeof(id.internal));
  return id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewNcclCollective(const NcclOptions& given,
                                                              KeyValueStore& store) {
  NcclOptions options = given;
  if (options.host.empty()) {
    options.host = HostName();
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.world_size));
  }
  if (options.cuda == nullptr) {
    return absl::InvalidArgumentError("NCCL needs a GPU");
  }
  const int gpu = options.cuda->gpu().ordinal;
  // Not the ordinal: each trainer of a node may be shown one GPU only, which all of them call 0.
  const std::string self =
      absl::StrCat("rank ", options.rank, " of ", options.world_size, " on ", options.host,
                   " (GPU ", options.cuda->gpu().pci_bus_id, ")");
  const auto named = [&self](const absl::Status& status) {
    return Annotate(status, absl::StrCat(self, ": rendezvous"));
  };
  const absl::StatusOr<Nccl> nccl = Nccl::Load();
  if (!nccl.ok()) {
    return named(nccl.status());
  }
  const absl::StatusOr<ncclUniqueId> id = Meet(*nccl, options, store);
  if (!id.ok()) {
    return named(id.status());
  }
  const absl::Duration deadline = Clock::Real().Monotonic() + options.rendezvous_timeout;
  auto comm = std::make_unique<NcclCommunicator>(*nccl, self, gpu, options.operation_timeout);
  HEARTH_RETURN_IF_ERROR(comm->Connect(*id, options.world_size, options.rank, deadline));
  auto collective =
      std::make_unique<NcclCollective>(std::move(comm), options.rank, options.world_size);
  HEARTH_RETURN_IF_ERROR(collective->PrepareStaging(*options.cuda));
  return std::unique_ptr<Collective>(std::move(collective));
}

}  // namespace hearth::trainer
