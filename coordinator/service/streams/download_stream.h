// DownloadCheckpoint: a file of a checkpoint, read piece by piece by a worker that sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/core/core.h"
#include "coordinator/service/agents/inspector.h"
#include "coordinator/service/agents/worker_slots.h"
#include "coordinator/service/loop/loop.h"
#include "coordinator/service/streams/stream_reactor.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// They share the workers' streams with heartbeats and reports.
inline const WorkerSlots::Limits kDownloadLimits = {
    .what = "downloads", .open_max = 8, .per_worker = 2};

// Asks for the next pieces as the client takes those before: a slow client holds at most kWindow
// pieces here, none at the worker, and slows nobody.
class DownloadReactor : public StreamReactor<v1::DownloadCheckpointResponse> {
 public:
  // Pieces that were asked for and have not been sent to the client.
  static constexpr size_t kWindow = 2;

  // All outlive the object.
  DownloadReactor(Executor& executor,
                  Loop& loop,
                  Inspector& inspector,
                  WorkerSlots& slots,
                  const v1::DownloadCheckpointRequest& request)
      : StreamReactor(executor),
        loop_(loop),
        inspector_(inspector),
        slots_(slots),
        request_(request) {}

 protected:
  Next Produce(v1::DownloadCheckpointResponse& response, absl::Status& status) override;

 private:
  struct Piece {
    int64_t id = 0;
    std::optional<absl::StatusOr<v1::CheckpointFileBytes>> answer;
  };

  // Has the loop find the checkpoint and a worker.
  void Find();
  void Found(absl::StatusOr<v1::Checkpoint> checkpoint, std::optional<Core::Reader> reader)
      ABSL_LOCKS_EXCLUDED(pieces_mu_);
  // Asks for as much as the window lacks.
  void AskMore() ABSL_LOCKS_EXCLUDED(pieces_mu_);
  void Arrived(int64_t id, absl::StatusOr<v1::CheckpointFileBytes> answer)
      ABSL_LOCKS_EXCLUDED(pieces_mu_);
  // Puts a piece into the response.
  absl::Status Take(v1::CheckpointFileBytes piece, v1::DownloadCheckpointResponse& response)
      ABSL_LOCKS_EXCLUDED(pieces_mu_);
  // Gives the slot back before the client hears of the end, so that its next call finds it free.
  Next End() ABSL_LOCKS_EXCLUDED(pieces_mu_);
  // Names worker and checkpoint.
  absl::Status Explain(const absl::Status& status) const ABSL_LOCKS_EXCLUDED(pieces_mu_);

  Loop& loop_;
  Inspector& inspector_;
  WorkerSlots& slots_;
  const v1::DownloadCheckpointRequest request_;
  // Produce alone uses these.
  bool started_ = false;
  bool first_ = true;
  int64_t sent_ = -1;  // first byte that was not sent yet; -1: nothing arrived yet

  mutable absl::Mutex pieces_mu_;
  bool found_ ABSL_GUARDED_BY(pieces_mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(pieces_mu_);
  v1::Checkpoint checkpoint_ ABSL_GUARDED_BY(pieces_mu_);
  Core::Reader reader_ ABSL_GUARDED_BY(pieces_mu_);
  std::unique_ptr<WorkerSlots::Slot> slot_ ABSL_GUARDED_BY(pieces_mu_);
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(pieces_mu_);  // in the order of the file
  int64_t next_id_ ABSL_GUARDED_BY(pieces_mu_) = 0;
  int64_t asked_ ABSL_GUARDED_BY(pieces_mu_) = 0;        // first byte that was not asked for yet
  int64_t file_bytes_ ABSL_GUARDED_BY(pieces_mu_) = -1;  // -1: not known yet
};

}  // namespace hearth::coordinator
