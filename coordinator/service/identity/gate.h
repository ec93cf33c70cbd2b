// The gate: finds out who makes a call and whether they may. Each handler of the API asks it first
// (Change, Answer and Open do so for theirs).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/service/identity/call_table.h"
#include "coordinator/service/loop/loop.h"
#include "coordinator/service/view/view.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"

namespace hearth::coordinator {

// A caller whom the gate has let in.
struct Admitted {
  v1::Caller caller;
  // The record by which the caller was known; null: a local token, or an open coordinator.
  TokenPtr token;
};

// Thread-safe. The references outlive it.
class Gate {
 public:
  // `open`: everyone who reaches the coordinator may do everything.
  Gate(const View& view, Loop& loop, Clock& clock, bool open);

  // A token that is not in the store: the token of the coordinator's own account on this machine.
  void AllowLocal(std::string_view secret, const v1::Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  // The caller, if they may make the call with this request. kUnauthenticated: no token, or one
  // that is not known or has expired; kPermissionDenied: the role, or the job is another user's;
  // kInvalidArgument: a field out of its bounds (limits.h), or hearth-as. Refusals are audited.
  absl::StatusOr<Admitted> Admit(const grpc::CallbackServerContext& context,
                                 const google::protobuf::Message& request);
  // The same for a reader over HTTP, with the role viewer. `authorization`: the header, "Bearer
  // TOKEN" or "Basic ..." with the token as the password.
  absl::StatusOr<Admitted> AdmitReader(std::string_view authorization,
                                       const std::string& address,
                                       const std::string& path);
  // Whether an agent may call itself `worker_id`. kPermissionDenied.
  absl::Status CheckWorker(const Admitted& agent, const std::string& worker_id);

  // kUnauthenticated: the token that let the caller in is revoked or has expired since. Another
  // token of the same name is not it.
  absl::Status StillValid(const TokenPtr& token) const;
  // The same, and the owner, as of the moment at which a command is applied. `job`: its target as
  // the core has it; null: there is no such job.
  absl::Status Recheck(const Origin& origin, const v1::JobRecord* job) const;

 private:
  struct Local {
    std::string sha256;
    v1::Caller caller;
  };

  // Fills `admitted` as far as the caller is known, also when it is refused.
  absl::Status Authenticate(const grpc::CallbackServerContext& context, Admitted& admitted) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status FindToken(std::string_view secret, Admitted& admitted) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status UseToken(const TokenPtr& token, Admitted& admitted) const;
  // Returns `status`.
  absl::Status Refuse(const absl::Status& status, const Origin& origin) ABSL_LOCKS_EXCLUDED(mu_);

  const View& view_;
  Loop& loop_;
  Clock& clock_;
  const bool open_;
  mutable absl::Mutex mu_;
  std::vector<Local> local_ ABSL_GUARDED_BY(mu_);
  // Refusals are written down at most so often: they cost a stranger nothing, and us a disk write.
  double refusals_allowed_ ABSL_GUARDED_BY(mu_);
  absl::Duration refusals_time_ ABSL_GUARDED_BY(mu_);
  int64_t refusals_left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

// What an audit record names: the caller, the method of the request, and the job, worker or token
// in it.
Origin OriginOf(const Admitted& admitted, const google::protobuf::Message& request);

}  // namespace hearth::coordinator
