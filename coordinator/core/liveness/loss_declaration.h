// What users say of workers that are silent: they are gone. Owns nothing.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/liveness/isolation.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/liveness/silent_workers.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/worker_views.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class LossDeclaration {
 public:
  // All that is passed in outlives this.
  LossDeclaration(Turn& turn,
                  const Workers& workers,
                  const Liveness& liveness,
                  SilentWorkers& silent,
                  Isolation& isolation,
                  WorkerViews& views,
                  PlanTimer& plan)
      : turn_(turn),
        workers_(workers),
        liveness_(liveness),
        silent_(silent),
        isolation_(isolation),
        views_(views),
        plan_(plan) {}

  static std::vector<CommandRow> Rows();

 private:
  void Declare(const v1::DeclareLostRequest& request);
  // The workers that the request means; without names, those that are silent and have a rank.
  absl::StatusOr<std::set<std::string>> NamesOf(const v1::DeclareLostRequest& request) const;
  // Whether users may say that this worker is gone.
  bool IsSilent(const WorkerState& worker) const;

  Turn& turn_;
  const Workers& workers_;
  const Liveness& liveness_;
  SilentWorkers& silent_;
  Isolation& isolation_;
  WorkerViews& views_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
