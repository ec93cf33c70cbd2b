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
#include "coordinator/service/loop.h"
#include "coordinator/service/view.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"

namespace hearth::coordinator {

// Thread-safe. The references outlive it.
class Gate {
 public:
  // `open`: everyone who reaches the coordinator may do everything.
  Gate(const View& view, Loop& loop, Clock& clock, bool open);

  // A token that is not in the store: that of this machine's own account.
  void AllowLocal(std::string_view secret, const v1::Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  // Who makes the call, if they may make it with this request. kUnauthenticated: no token, or one
  // that is not known or has expired; kPermissionDenied: the role, or the job is another user's;
  // kInvalidArgument: a field out of its bounds (limits.h), or hearth-as. Refusals are audited.
  absl::StatusOr<v1::Caller> Admit(const grpc::CallbackServerContext& context,
                                   const google::protobuf::Message& request);
  // The same for a reader over HTTP, who needs the role viewer. `authorization`: the header, "Bearer
  // TOKEN" or "Basic ..." with the token as the password.
  absl::StatusOr<v1::Caller> AdmitReader(std::string_view authorization,
                                         const std::string& address,
                                         const std::string& path);
  // Whether an agent may call itself `worker_id`. kPermissionDenied.
  absl::Status CheckWorker(const v1::Caller& caller, const std::string& worker_id);

  // kUnauthenticated: the token that the caller proved is revoked or has expired since.
  absl::Status StillValid(const v1::Caller& caller) const;

 private:
  struct Local {
    std::string sha256;
    v1::Caller caller;
  };

  absl::StatusOr<v1::Caller> Authenticate(const grpc::CallbackServerContext& context) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::Caller> FindToken(std::string_view secret) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::Caller> CallerOf(const TokenPtr& token) const;
  absl::Status CheckOwner(const v1::Caller& caller,
                          const Call& call,
                          const google::protobuf::Message& request) const;
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

// Whom and what an audit record names: the method of the request, and the job, worker or token in
// it.
Origin OriginOf(const v1::Caller& caller, const google::protobuf::Message& request);

}  // namespace hearth::coordinator
