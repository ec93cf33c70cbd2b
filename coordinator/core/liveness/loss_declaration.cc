#include "coordinator/core/liveness/loss_declaration.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

constexpr int kDeclaredMax = 1000;

}  // namespace

std::vector<CommandRow> LossDeclaration::Rows() {
  return {
      Row<&LossDeclaration::Declare>("declare_lost"),
  };
}

absl::StatusOr<std::set<std::string>> LossDeclaration::NamesOf(
    const v1::DeclareLostRequest& request) const {
  if (request.worker_ids_size() > kDeclaredMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKERS",
                     absl::StrCat("worker_ids has ", request.worker_ids_size(), " names; at most ",
                                  kDeclaredMax, " are taken, and none means all that are silent"));
  }
  std::set<std::string> names(request.worker_ids().begin(), request.worker_ids().end());
  for (const std::string& name : names) {
    const WorkerState* worker = workers_.Find(name);
    if (worker == nullptr) {
      return WorkerNotFound(name);
    }
    if (!IsSilent(*worker)) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "WORKER_ANSWERS",
                       absl::StrCat("worker ", name,
                                    " answers; drain it, or stop its daemon, to take its job away"),
                       {{"worker_id", name}});
    }
  }
  for (const auto& [name, worker] : workers_.all()) {
    if (request.worker_ids().empty() && !worker.job_id.empty() && IsSilent(worker)) {
      names.insert(name);
    }
  }
  return names;
}

bool LossDeclaration::IsSilent(const WorkerState& worker) const {
  if (worker.connection == 0) {
    return true;
  }
  // An isolation begins when the first worker runs out of patience. The others spoke up to one
  // heartbeat later; if they were left out, they would begin the next isolation at once.
  return liveness_.isolated() ? !liveness_.Answers(worker, turn_.mono())
                              : liveness_.Silent(worker, turn_.mono());
}

void LossDeclaration::Declare(const v1::DeclareLostRequest& request) {
  const absl::StatusOr<std::set<std::string>> names = NamesOf(request);
  if (!names.ok()) {
    turn_.ReplyError(names.status());
    return;
  }
  v1::DeclareLostResponse response;
  for (const std::string& name : *names) {
    const WorkerState& worker = workers_.at(name);
    if (!worker.lost) {
      silent_.DeclareLost(worker);
      views_.Update(worker);
    }
    *response.add_workers() = worker.worker();
  }
  if (liveness_.isolated() &&
      (request.worker_ids().empty() || liveness_.ContactIsBack(workers_.all(), turn_.mono()))) {
    isolation_.EndByUser();
  }
  response.set_isolated(liveness_.isolated());
  plan_.Ask();
  turn_.ReplyOk().declared = std::move(response);
}

}  // namespace hearth::coordinator
