// What all parts of a rank's life use: the task, the job as it is by now, the ways out of the
// process, and who is to blame if the present stage fails.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device_error.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/pulse/pulse.h"
#include "worker/trainer/rank/agreement.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {

// Owned by RankRun; the parts keep a reference. For the step thread only; link and clock may also
// be used from other threads.
struct RankContext {
  explicit RankContext(const RankOptions& options)
      : link(*options.link),
        env(*options.env),
        clock(*options.clock),
        pulse(options.pulse == nullptr ? unwatched : *options.pulse),
        task(options.link->task()),
        spec(task.spec()),
        leader(task.rank() == 0) {}
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // Whether what happens every `every` steps (0: never) and after the last one happens after
  // `step`.
  bool Due(int64_t step, int64_t every) const {
    return step == spec.train().steps() || (every > 0 && step % every == 0);
  }

  // For an error of a step or of an evaluation: sets `blame` by its kind. Returns `status`.
  absl::Status Blame(const absl::Status& status) {
    const absl::StatusCode code = status.code();
    if (code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kOutOfRange) {
      blame = v1::EXIT_REASON_BAD_DATA;
    } else if (code == absl::StatusCode::kUnavailable ||
               code == absl::StatusCode::kDeadlineExceeded) {
      blame = v1::EXIT_REASON_COMM;
    } else {
      blame = cuda != nullptr ? v1::EXIT_REASON_DEVICE : v1::EXIT_REASON_INTERNAL;
    }
    return status;
  }

  // The exit reason of a run that ends with this error. A GPU's error may come to light in any
  // later call, so its mark goes before the stage.
  v1::ExitReason BlameFor(const absl::Status& status) const {
    return kernels::IsDeviceError(status) ? v1::EXIT_REASON_DEVICE : blame;
  }

  Link& link;
  Env& env;
  Clock& clock;
  Pulse unwatched;  // stands in where nobody watches
  Pulse& pulse;
  const v1::Task& task;
  // The task's at first. RankRun completes it, and TrialDuty puts in the recipe that the trial
  // chose; the other parts only read it.
  v1::JobSpec spec;
  const bool leader;                           // rank 0
  std::unique_ptr<kernels::CudaContext> cuda;  // null: the CPU, or not opened yet
  Agreed agreed;                               // complete once the ranks have agreed
  // HostMemoryBytes when they did, before any of them pinned.
  std::optional<int64_t> host_bytes;
  // The exit reason if the present stage fails. Each stage sets it when it begins.
  v1::ExitReason blame = v1::EXIT_REASON_INTERNAL;
};

}  // namespace hearth::trainer
