// SampleCheckpoint: a text that a worker lets a checkpoint's model write, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
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
#include "hearth/v1/generate.pb.h"

namespace hearth::coordinator {

inline const WorkerSlots::Limits kSampleLimits = {.what = "texts", .open_max = 64, .per_worker = 1};

class SampleReactor : public StreamReactor<v1::SampleCheckpointResponse> {
 public:
  // Limit on text that has arrived and that the client has not read, in bytes; beyond it the stream
  // ends.
  static constexpr size_t kWaitingBytes = 8 << 20;

  // All outlive the object. `seed` counts where the request has none.
  SampleReactor(Executor& executor,
                Loop& loop,
                Inspector& inspector,
                WorkerSlots& slots,
                const v1::SampleCheckpointRequest& request,
                int64_t seed);
  // Tells the worker that nobody waits any more.
  ~SampleReactor() override;

 protected:
  Next Produce(v1::SampleCheckpointResponse& response, absl::Status& status) override;

 private:
  // Has the loop find the checkpoint and a worker.
  void Find();
  void Found(absl::StatusOr<v1::Checkpoint> checkpoint, const Core::IdleReaders& workers)
      ABSL_LOCKS_EXCLUDED(text_mu_);
  // The first of them that writes no other text; else an error that says why none can.
  absl::Status Choose(const v1::Checkpoint& checkpoint, const Core::IdleReaders& workers);
  void Arrived(absl::StatusOr<v1::WrittenText> piece) ABSL_LOCKS_EXCLUDED(text_mu_);

  Loop& loop_;
  Inspector& inspector_;
  WorkerSlots& slots_;
  v1::SampleCheckpointRequest request_;
  bool started_ = false;  // Produce alone uses it

  // Set before the first piece can come.
  Core::Reader worker_;
  std::unique_ptr<WorkerSlots::Slot> slot_;

  absl::Mutex text_mu_;
  int64_t writing_ ABSL_GUARDED_BY(text_mu_) = 0;  // id of the question; 0: none was asked
  // The next response: text of all pieces that wait, and what the first and the last one say.
  v1::SampleCheckpointResponse next_ ABSL_GUARDED_BY(text_mu_);
  bool ready_ ABSL_GUARDED_BY(text_mu_) = false;  // next_ has something
  bool over_ ABSL_GUARDED_BY(text_mu_) = false;   // nothing follows next_
  absl::Status end_ ABSL_GUARDED_BY(text_mu_);    // once it is over
};

}  // namespace hearth::coordinator
