// Collective operations among the ranks of one job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"

namespace hearth::trainer {

// All ranks call the same operations in the same order with the same sizes; each blocks until the
// result is in `data`, which is the same bits on every rank and in every repetition with the same
// world size (the order of the sums depends on nothing else). Used by one thread at a time. After
// an error (kUnavailable: a peer is gone; kDeadlineExceeded) the object is of no more use. Error
// texts name this rank and its host. A blocked operation cannot be woken from outside: kill the
// process.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view transport() const = 0;  // none | gloo | nccl | threads; RunInfo.comm

  virtual absl::Status AllReduceSum(absl::Span<float> data) = 0;
  virtual absl::Status AllReduceSum(absl::Span<double> data) = 0;
  virtual absl::Status AllReduceMax(absl::Span<int32_t> data) = 0;
  virtual absl::Status AllReduceMax(absl::Span<uint64_t> data) = 0;
  virtual absl::Status Broadcast(absl::Span<uint8_t> data, int root) = 0;
  virtual absl::Status Barrier() = 0;

  // ---- Tensors, in place except for AllToAll, and beside the ops. Done on return on the CPU; on a
  // GPU done when exec.stream gets there, and they may be recorded into a graph (once the same call
  // has run outside of one). Contiguous; sums in the tensor's own type: kF32, kF64, on a GPU also
  // kBF16.
  virtual absl::Status AllReduceSum(const kernels::Exec& exec, const kernels::TensorView& data) = 0;
  // kI32.
  virtual absl::Status AllReduceMax(const kernels::Exec& exec, const kernels::TensorView& data) = 0;
  // `data` is world_size() equal pieces. Afterwards piece rank() is its sum over the ranks, the
  // others hold anything.
  virtual absl::Status ReduceScatterSum(const kernels::Exec& exec,
                                        const kernels::TensorView& data) = 0;
  // `data` is world_size() equal pieces (any type); every rank's piece rank() goes to all.
  virtual absl::Status AllGather(const kernels::Exec& exec, const kernels::TensorView& data) = 0;
  // Both are world_size() equal pieces of one type (any) and do not overlap. Piece p of `send` goes
  // to rank p, where it becomes the piece of `receive` with this rank's number.
  virtual absl::Status AllToAll(const kernels::Exec& exec,
                                const kernels::TensorView& send,
                                const kernels::TensorView& receive) = 0;
  // Tensor operations between the two may be launched as one: none is done before GroupEnd. Not
  // nested.
  virtual absl::Status GroupBegin() = 0;
  virtual absl::Status GroupEnd() = 0;

  // What went wrong with operations that the GPU is still busy with, as far as the transport knows;
  // OK while nothing did. Does not wait and allocates nothing while it is OK. A peer that is merely
  // silent is not an error to it, so a caller that waits needs a limit (StepWatch).
  virtual absl::Status Health() { return absl::OkStatus(); }
};

// Broadcast of text of any length: its size, then its bytes. Returns `root`'s text on every rank.
absl::StatusOr<std::string> BroadcastString(Collective& comm, std::string_view text, int root);

// World of one; every operation is the identity.
std::unique_ptr<Collective> NewSoloCollective();

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  std::string advertise_host;  // name or address peers reach this rank at; empty = 127.0.0.1
  // Longest wait for all ranks to come: each has its own data and checkpoint to load before.
  absl::Duration gather_timeout = absl::Minutes(1);
  // From then on, until they are connected.
  absl::Duration rendezvous_timeout = absl::Minutes(1);
  // Means the same as in MeshOptions.
  std::function<void(std::string_view)> on_stranger;
  // Longest wait in one operation: peers may be writing a checkpoint meanwhile.
  absl::Duration operation_timeout = absl::Minutes(30);
};

// Full mesh of TCP connections on ports the system chooses; addresses and the gang's secret go
// through `store` (used during this call only). A peer that connects and does not know the secret
// is dropped. kDeadlineExceeded: not all ranks came or connected, naming the first missing one;
// kInvalidArgument: advertise_host does not resolve to an address of this machine.
absl::StatusOr<std::unique_ptr<Collective>> NewGlooCollective(const GlooOptions& options,
                                                              KeyValueStore& store);

struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  kernels::CudaContext* cuda = nullptr;  // of this rank, outlives the collective
  std::string host;                      // of this rank, for error texts; empty = its name
  // These mean the same as in GlooOptions.
  absl::Duration gather_timeout = absl::Minutes(1);
  absl::Duration rendezvous_timeout = absl::Minutes(1);
  // Longest wait in one operation on spans, and for NCCL to hand an operation to the GPU. What is
  // then on the GPU waits for its peers for ever.
  absl::Duration operation_timeout = absl::Minutes(30);
};

// NCCL 2.19 or later by dlopen (HEARTH_NCCL, else the loader's libnccl.so.2). Every rank puts a key
// into `store` (used during this call only), rank 0 also the ncclUniqueId; the communicator is made
// without blocking and polled until the deadline. NCCL's own listeners tell ranks from strangers by
// the eight random bytes in that id, and are not ours to guard. Host-side operations go through a
// small device buffer and wait for it. Graphs that hold its operations must be destroyed before it.
// Its destructor says goodbye to the peers (10 s at most); after an error it aborts (5 s at most),
// GPU memory that a kernel of NCCL may still use should then stay until the process ends, soon.
// kUnavailable: no NCCL, or what NCCL says; kInternal: this GPU's errors; kDeadlineExceeded: not
// all ranks came, naming the first missing one if it did not even start; kInvalidArgument: an id of
// another NCCL. All name this rank and its host.
absl::StatusOr<std::unique_ptr<Collective>> NewNcclCollective(const NcclOptions& options,
                                                              KeyValueStore& store);

// `world_size` ranks in one process, one per thread; for tests. Sums in rank order.
std::vector<std::unique_ptr<Collective>> NewThreadCollectives(int world_size);

}  // namespace hearth::trainer
