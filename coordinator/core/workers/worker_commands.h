// What users ask of workers. Owns nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/worker_views.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class WorkerCommands {
 public:
  // All that is passed in outlives this.
  WorkerCommands(Turn& turn, Workers& workers, WorkerViews& views, PlanTimer& plan)
      : turn_(turn), workers_(workers), views_(views), plan_(plan) {}

  static std::vector<CommandRow> Rows();

 private:
  void Cordon(const v1::CordonWorkerRequest& request);
  void Uncordon(const v1::UncordonWorkerRequest& request);
  void Drain(const v1::DrainWorkerRequest& request);
  void Delete(const v1::DeleteWorkerRequest& request);
  // Null, with an error as the reply, when the worker is unknown.
  const WorkerState* FindOrReply(const std::string& worker_id);
  // Makes the change to the worker's record; the worker is the reply.
  void Change(const std::string& worker_id, const std::function<void(v1::WorkerRecord&)>& change);

  Turn& turn_;
  Workers& workers_;
  WorkerViews& views_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
