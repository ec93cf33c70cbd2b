// The communicator of a job's ranks, and how they meet.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/rendezvous/prefixed_store.h"
#include "worker/trainer/rank/rank_context.h"

namespace hearth::trainer {

// Owns the communicator. For the step thread only. All ranks meet and leave together.
class Meeting {
 public:
  // `rank` outlives it.
  explicit Meeting(RankContext& rank) : rank_(rank) {}

  // Ranks with GPUs meet over NCCL, others over Gloo; a single rank meets nobody. The device is
  // open. May be called again after Leave().
  // Errors: those of NewNcclCollective and NewGlooCollective; sets rank.blame.
  absl::Status Meet();
  // Frees the communicator. Graphs that hold its operations must be gone.
  void Leave() { comm_.reset(); }

  // Between Meet() and Leave().
  bool met() const { return comm_ != nullptr; }
  Collective& comm() const { return *comm_; }

 private:
  absl::StatusOr<std::unique_ptr<Collective>> Connect();

  RankContext& rank_;
  int meetings_ = 0;
  std::unique_ptr<PrefixedStore> store_;  // of the last meeting, if it was not the first
  std::unique_ptr<Collective> comm_;
};

}  // namespace hearth::trainer
