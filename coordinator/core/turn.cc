#include "coordinator/core/turn.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {

void Turn::Begin(Now now, const Origin* origin) {
  HEARTH_CHECK(now.monotonic >= now_.monotonic, "monotonic time never goes back");
  now_ = now;
  const bool known = origin != nullptr && !origin->caller.user().empty();
  user_ = known ? absl::StrCat("user:", origin->caller.user()) : "user";
  effects_ = Effects();
}

void Turn::Send(const WorkerState& worker, v1::CoordinatorMessage message) {
  // Nothing is lost: the worker's next Hello lists its tasks, and HelloTasks tells it what it
  // missed.
  if (worker.connection == 0) {
    return;
  }
  // Agents refuse a lower generation than they have seen, so a coordinator that was replaced can no
  // longer command them.
  message.set_generation(generation_);
  effects_.messages.push_back({worker.connection, worker.worker().worker_id(),
                               worker.worker().incarnation(), std::move(message)});
}

Reply& Turn::ReplyOk() {
  return effects_.reply.emplace(Reply{absl::OkStatus(), std::nullopt, std::nullopt});
}

void Turn::ReplyError(absl::Status status) {
  effects_.reply = Reply{std::move(status), std::nullopt, std::nullopt};
}

void Turn::ReplyJob(const v1::Job& job) {
  ReplyOk().job = job;
}

void Turn::ReplyWorker(const v1::Worker& worker) {
  ReplyOk().worker = worker;
}

}  // namespace hearth::coordinator
