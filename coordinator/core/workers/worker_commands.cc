// What users ask of workers.
#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

// Null, with an error as the reply, when the worker is unknown.
const WorkerState* FindOrReply(CoreParts& core, const std::string& worker_id) {
  const WorkerState* worker = core.workers_.Find(worker_id);
  if (worker == nullptr) {
    core.ReplyError(MakeError(absl::StatusCode::kNotFound, "WORKER_NOT_FOUND",
                              absl::StrCat("no worker ", worker_id), {{"worker_id", worker_id}}));
  }
  return worker;
}

// What a call changes of a worker's record; the caller gets the worker.
template <typename Change>
void ChangeWorker(CoreParts& core, const std::string& worker_id, const Change& change) {
  if (const WorkerState* worker = FindOrReply(core, worker_id)) {
    change(core.workers_.Edit(*worker));
    core.UpdateWorkerView(*worker);
    core.effects_.reply = Reply{absl::OkStatus(), std::nullopt, worker->worker()};
  }
}

void Cordon(CoreParts& core, const v1::CordonWorkerRequest& request) {
  ChangeWorker(core, request.worker_id(),
               [](v1::WorkerRecord& record) { record.mutable_worker()->set_cordoned(true); });
}

void Uncordon(CoreParts& core, const v1::UncordonWorkerRequest& request) {
  ChangeWorker(core, request.worker_id(), [](v1::WorkerRecord& record) {
    record.mutable_worker()->set_cordoned(false);
    record.mutable_worker()->set_draining(false);
    record.clear_unhealthy();  // somebody has looked
  });
}

void Drain(CoreParts& core, const v1::DrainWorkerRequest& request) {
  ChangeWorker(core, request.worker_id(), [](v1::WorkerRecord& record) {
    record.mutable_worker()->set_cordoned(true);
    record.mutable_worker()->set_draining(true);
  });
}

void Delete(CoreParts& core, const v1::DeleteWorkerRequest& request) {
  const WorkerState* worker = FindOrReply(core, request.worker_id());
  if (worker == nullptr) {
    return;
  }
  if (core.HasRank(*worker)) {
    core.ReplyError(MakeError(
        absl::StatusCode::kFailedPrecondition, "WORKER_BUSY",
        absl::StrCat("worker ", request.worker_id(), " has a rank of a job; drain it first")));
    return;
  }
  core.Close(*worker, absl::UnavailableError("this worker was deleted; connect again"));
  core.workers_.Delete(request.worker_id(), core.effects_);
  core.plan_.Ask();
  core.effects_.reply = Reply{absl::OkStatus(), std::nullopt, std::nullopt};
}

}  // namespace

std::vector<CommandRow> WorkerCommands() {
  return {
      Row<v1::CordonWorkerRequest, &Cordon>("cordon_worker", OnFullDisk::kRefused),
      Row<v1::UncordonWorkerRequest, &Uncordon>("uncordon_worker", OnFullDisk::kRefused),
      Row<v1::DrainWorkerRequest, &Drain>("drain_worker", OnFullDisk::kRefused),
      Row<v1::DeleteWorkerRequest, &Delete>("delete_worker"),
  };
}

}  // namespace hearth::coordinator
