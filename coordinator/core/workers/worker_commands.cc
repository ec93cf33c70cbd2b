#include "coordinator/core/workers/worker_commands.h"

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {

std::vector<CommandRow> WorkerCommands::Rows() {
  return {
      Row<&WorkerCommands::Cordon>("cordon_worker", OnFullDisk::kRefused),
      Row<&WorkerCommands::Uncordon>("uncordon_worker", OnFullDisk::kRefused),
      Row<&WorkerCommands::Drain>("drain_worker", OnFullDisk::kRefused),
      Row<&WorkerCommands::Delete>("delete_worker"),
  };
}

const WorkerState* WorkerCommands::FindOrReply(const std::string& worker_id) {
  const WorkerState* worker = workers_.Find(worker_id);
  if (worker == nullptr) {
    turn_.ReplyError(WorkerNotFound(worker_id));
  }
  return worker;
}

void WorkerCommands::Change(const std::string& worker_id,
                            const std::function<void(v1::WorkerRecord&)>& change) {
  if (const WorkerState* worker = FindOrReply(worker_id)) {
    change(workers_.Edit(*worker));
    views_.Update(*worker);
    turn_.ReplyWorker(worker->worker());
  }
}

void WorkerCommands::Cordon(const v1::CordonWorkerRequest& request) {
  Change(request.worker_id(),
         [](v1::WorkerRecord& record) { record.mutable_worker()->set_cordoned(true); });
}

void WorkerCommands::Uncordon(const v1::UncordonWorkerRequest& request) {
  Change(request.worker_id(), [](v1::WorkerRecord& record) {
    record.mutable_worker()->set_cordoned(false);
    record.mutable_worker()->set_draining(false);
    record.clear_unhealthy();  // somebody has looked
  });
}

void WorkerCommands::Drain(const v1::DrainWorkerRequest& request) {
  Change(request.worker_id(), [](v1::WorkerRecord& record) {
    record.mutable_worker()->set_cordoned(true);
    record.mutable_worker()->set_draining(true);
  });
}

void WorkerCommands::Delete(const v1::DeleteWorkerRequest& request) {
  const WorkerState* worker = FindOrReply(request.worker_id());
  if (worker == nullptr) {
    return;
  }
  if (views_.HasRank(*worker)) {
    turn_.ReplyError(MakeError(
        absl::StatusCode::kFailedPrecondition, "WORKER_BUSY",
        absl::StrCat("worker ", request.worker_id(), " has a rank of a job; drain it first")));
    return;
  }
  workers_.Close(*worker, absl::UnavailableError("this worker was deleted; connect again"),
                 turn_.mono(), turn_.effects());
  workers_.Delete(request.worker_id(), turn_.effects());
  plan_.Ask();
  turn_.ReplyOk();
}

}  // namespace hearth::coordinator
