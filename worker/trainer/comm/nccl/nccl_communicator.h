// One rank's communicator of NCCL and how to wait for it without waiting for ever. For the files of
// the NCCL transport only.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/trainer/comm/nccl/nccl_library.h"

namespace hearth::trainer {

// Not thread-safe. Its calls do not touch CUDA, so that they may be made while a stream is being
// recorded.
class NcclCommunicator {
 public:
  // `self` names the rank in errors, `gpu` is the ordinal of its GPU, `timeout` the longest wait in
  // one call.
  NcclCommunicator(const Nccl& nccl, std::string self, int gpu, absl::Duration timeout)
      : nccl_(nccl), self_(std::move(self)), gpu_(gpu), timeout_(timeout) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  // In good order if nothing failed; else the communicator is aborted. Both happen beside this
  // thread, which goes on after some seconds if NCCL does not come back.
  ~NcclCommunicator();

  // Makes the communicator of `world_size` ranks on `gpu`, until `deadline` (Clock::Real's
  // Monotonic). kDeadlineExceeded: not all ranks came.
  absl::Status Connect(const ncclUniqueId& id, int world_size, int rank, absl::Duration deadline);

  // The end of a call that returned `result`: what it has started is handed to the GPU. `what`
  // names it in errors.
  absl::Status Settle(ncclResult_t result, const std::string& what);
  // What NCCL has found out in the background; OK while nothing is wrong.
  absl::Status Health(const std::string& what);
  // OK, or the first failure, after which nothing may be started.
  const absl::Status& failure() const { return failure_; }
  // Remembers and returns the failure, this rank's name put before it.
  absl::Status Fail(absl::StatusCode code, const std::string& what, const std::string& why);

  const Nccl& nccl() const { return nccl_; }
  ncclComm_t get() const { return comm_; }
  absl::Duration timeout() const { return timeout_; }
  // False after a destruction in disorder: GPU memory and streams that NCCL may still use stay.
  bool Close();

 private:
  absl::Status FailWith(ncclResult_t result, const std::string& what);
  absl::Status Await(ncclResult_t result, const std::string& what, absl::Duration deadline);

  const Nccl nccl_;
  const std::string self_;  // "rank 1 of 4 on host (GPU 0000:1B:00.0)"
  const int gpu_;
  const absl::Duration timeout_;
  ncclComm_t comm_ = nullptr;
  absl::Status failure_;
};

}  // namespace hearth::trainer
