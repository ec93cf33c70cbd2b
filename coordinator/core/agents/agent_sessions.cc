#include "coordinator/core/agents/agent_sessions.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {

std::vector<CommandRow> AgentSessions::Rows() {
  return {
      Row<&AgentSessions::Connected>("agent_connected"),
      Row<&AgentSessions::Disconnected>("agent_disconnected"),
      Row<&AgentSessions::Goodbye>("agent_goodbye"),
  };
}

void AgentSessions::Connected(const AgentConnected& command) {
  const v1::Hello& hello = command.hello;
  if (absl::Status admitted = admission_.Check(command); !admitted.ok()) {
    turn_.ReplyError(std::move(admitted));
    return;
  }
  if (const WorkerState* known = workers_.Find(hello.worker_id())) {
    // In this order: the old daemon's rank is found by its incarnation, which Connect replaces.
    if (!known->worker().incarnation().empty() &&
        known->worker().incarnation() != hello.incarnation()) {
      workers_.RetireIncarnation(*known);
      // A trainer dies with its daemon, so whatever the old one ran is gone.
      ends_.LoseRankOn(*known, absl::StrCat("worker ", hello.worker_id(), " was restarted"));
    }
    workers_.Close(*known, absl::CancelledError("replaced by a newer stream of the same worker"),
                   turn_.mono(), turn_.effects());
  }
  const WorkerState& worker = workers_.Connect(command, turn_.now());
  liveness_.NoteReturn(hello.worker_id(), turn_.mono());
  hello_tasks_.Reconcile(worker, hello);
  folders_.LookAt(hello.root_uuid(), absl::ZeroDuration());
  views_.Update(worker);
  turn_.ReplyWorker(worker.worker());
}

void AgentSessions::Disconnected(const AgentDisconnected& command) {
  if (const WorkerState* worker = workers_.OnConnection(command.connection_id)) {
    workers_.StreamEnded(*worker, turn_.mono());
  }
}

void AgentSessions::Goodbye(const AgentGoodbye& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const std::string why =
      absl::StrCat("worker ", worker->worker().worker_id(), " left: ", command.goodbye.reason());
  workers_.SaidGoodbye(*worker, turn_.mono());
  ends_.LoseRankOn(*worker, why);
}

}  // namespace hearth::coordinator
