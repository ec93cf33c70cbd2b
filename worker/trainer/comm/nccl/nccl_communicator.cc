#include "worker/trainer/comm/nccl/nccl_communicator.h"

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "kernels/cuda/device_error.h"
#include "worker/trainer/comm/rendezvous/backoff.h"

namespace hearth::trainer {
namespace {

// Peers say goodbye to one another; a peer that died without a word costs this long.
constexpr absl::Duration kFinalizeLimit = absl::Seconds(10);
constexpr absl::Duration kAbortLimit = absl::Seconds(5);

// Runs `body` on a thread of its own; false if it has not come back within `limit`. The thread then
// stays behind with what it holds.
bool RunBounded(absl::Duration limit, std::function<void()> body) {
  struct Progress {
    absl::Mutex mu;
    bool done ABSL_GUARDED_BY(mu) = false;
  };
  auto progress = std::make_shared<Progress>();
  std::thread([progress, body = std::move(body)] {
    body();
    absl::MutexLock lock(&progress->mu);
    progress->done = true;
  }).detach();
  absl::MutexLock lock(&progress->mu);
  return Clock::Real().AwaitWithTimeout(progress->mu, absl::Condition(&progress->done), limit);
}

// Whether all that was started on the communicator has come to its end, on the peers too.
bool Finalize(const Nccl& nccl, ncclComm_t comm) {
  const absl::Duration deadline = Clock::Real().Monotonic() + kFinalizeLimit;
  ncclResult_t state = nccl.CommFinalize(comm);
  Backoff backoff;
  while (state == ncclInProgress && Clock::Real().Monotonic() < deadline) {
    backoff.Pause();
    if (const ncclResult_t asked = nccl.CommGetAsyncError(comm, &state); asked != ncclSuccess) {
      state = asked;
    }
  }
  return state == ncclSuccess;
}

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:  // of this GPU
    case ncclInternalError:
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::StatusCode::kInternal;
    default:  // the network and the peers
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  Close();
}

bool NcclCommunicator::Close() {
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) {
    return failure_.ok();
  }
  // Copies: the thread may outlive this object.
  const auto abort = [nccl = nccl_, gpu = gpu_, comm] {
    cudaSetDevice(gpu);
    nccl.CommAbort(comm);
  };
  // After a failure nobody says goodbye: Finalize would wait for peers that may be gone.
  if (!failure_.ok()) {
    RunBounded(kAbortLimit, abort);
    return false;
  }
  auto finalized = std::make_shared<bool>(false);
  const bool returned = RunBounded(2 * kFinalizeLimit, [nccl = nccl_, gpu = gpu_, comm, finalized] {
    cudaSetDevice(gpu);
    *finalized = Finalize(nccl, comm);
    if (*finalized) {
      nccl.CommDestroy(comm);
    }
  });
  // Only if that thread is done: an abort beside a call that is stuck in NCCL would be a race.
  if (returned && !*finalized) {
    RunBounded(kAbortLimit, abort);
  }
  return returned && *finalized;
}

absl::Status NcclCommunicator::Fail(absl::StatusCode code,
                                    const std::string& what,
                                    const std::string& why) {
  absl::Status status(code, absl::StrCat(self_, ": ", what, ": ", why));
  if (code == absl::StatusCode::kInternal) {
    status = kernels::MarkDeviceError(std::move(status));
  }
  // The first one is the cause; what fails later follows from it.
  if (failure_.ok()) {
    failure_ = status;
  }
  return status;
}

absl::Status NcclCommunicator::FailWith(ncclResult_t result, const std::string& what) {
  const char* last = nccl_.GetLastError(comm_);
  const std::string details = last == nullptr || *last == '\0' ? "" : absl::StrCat(" (", last, ")");
  return Fail(
      CodeOf(result), what,
      absl::StrCat("NCCL ", nccl_.VersionText(), ": ", nccl_.GetErrorString(result), details));
}

absl::Status NcclCommunicator::Await(ncclResult_t result,
                                     const std::string& what,
                                     absl::Duration deadline) {
  Backoff backoff;
  while (result == ncclInProgress) {
    if (Clock::Real().Monotonic() > deadline) {
      return Fail(absl::StatusCode::kDeadlineExceeded, what,
                  "NCCL's peers did not answer before the deadline");
    }
    backoff.Pause();
    if (const ncclResult_t asked = nccl_.CommGetAsyncError(comm_, &result); asked != ncclSuccess) {
      result = asked;
    }
  }
  return result == ncclSuccess ? absl::OkStatus() : FailWith(result, what);
}

absl::Status NcclCommunicator::Connect(const ncclUniqueId& id,
                                       int world_size,
                                       int rank,
                                       absl::Duration deadline) {
  constexpr char kWhat[] = "rendezvous";
  if (const cudaError_t error = cudaSetDevice(gpu_); error != cudaSuccess) {
    return Fail(absl::StatusCode::kInternal, kWhat, cudaGetErrorString(error));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // A call that blocks would wait for a lost peer for ever. So each call returns at once, and Await
  // asks how it goes until the deadline.
  config.blocking = 0;
  const ncclResult_t result = nccl_.CommInitRankConfig(&comm_, world_size, id, rank, &config);
  if (comm_ == nullptr) {
    return FailWith(result == ncclSuccess || result == ncclInProgress ? ncclInternalError : result,
                    kWhat);
  }
  return Await(result, kWhat, deadline);
}

absl::Status NcclCommunicator::Settle(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) {
    return absl::OkStatus();
  }
  return Await(result, what, Clock::Real().Monotonic() + timeout_);
}

absl::Status NcclCommunicator::Health(const std::string& what) {
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t asked = nccl_.CommGetAsyncError(comm_, &state); asked != ncclSuccess) {
    state = asked;
  }
  return state == ncclSuccess || state == ncclInProgress ? absl::OkStatus() : FailWith(state, what);
}

}  // namespace hearth::trainer
