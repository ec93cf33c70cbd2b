// Keeps a stream to a coordinator: dials the coordinators in turn, sends Hello and heartbeats, and
// reconnects after every loss. The TaskTable decides what is sent; losing the stream affects no
// task.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"
#include "common/time/clock.h"
#include "worker/daemon/agent/stream_session.h"
#include "worker/daemon/supervise/task_table.h"

namespace hearth::worker {

class Agent {
 public:
  struct Options {
    rpc::CoordinatorList coordinators;
    rpc::TlsFiles tls;
    bool use_tls = false;
    // Read at each dial, so that a token that comes later is found. "" = rpc::FindToken's local
    // file.
    std::string token_file;
    // Pauses between rounds through the list.
    rpc::Backoff::Options backoff;
    // For this long after a loss the pauses stay below `eager_cap`, because a coordinator declares
    // a worker lost 3 s after its stream broke.
    absl::Duration eager = absl::Seconds(5);
    absl::Duration eager_cap = absl::Milliseconds(500);
    // The least pause after a coordinator did not take our token: it writes each refusal down.
    absl::Duration refused_pause = absl::Seconds(5);
    // A stream without a Welcome for this long is given up, and the next coordinator is tried.
    absl::Duration welcome_timeout = absl::Seconds(10);
    // How long ALREADY_EXISTS is tolerated: the daemon that had our name before may not yet count
    // as dead.
    absl::Duration name_taken_grace = absl::Seconds(10);
    // How long the coordinator may take to end the stream after Stop().
    absl::Duration finish_timeout = absl::Seconds(2);
  };

  struct Counters {
    bool connected = false;       // a coordinator has said Welcome on the present stream
    int64_t connects = 0;         // streams that were welcomed
    int64_t failed_attempts = 0;  // streams that were not
  };

  // `tick` is called on the agent's thread each heartbeat interval, connected or not; it should
  // call TaskTable::Tick. `on_fatal` is called once, on that thread, when reconnecting is useless:
  // ABORTED (a newer daemon has our name), ALREADY_EXISTS (another live one has it, or it is bound
  // to another data dir; only before the first Welcome, later we keep asking), INVALID_ARGUMENT
  // (the coordinator does not accept our Hello). The agent then does nothing more. UNAUTHENTICATED
  // and PERMISSION_DENIED are none of these: an admin may make the token while we ask.
  // `table` and `clock` outlive the object.
  Agent(Options options,
        TaskTable& table,
        Clock& clock,
        std::function<void()> tick,
        std::function<void(const absl::Status&)> on_fatal);
  ~Agent();

  // Ends the stream in order (what the table has ready, Goodbye included, must have been sent) and
  // the thread.
  void Stop();

  Counters counters() const;

 private:
  void Run();
  // Dials the present coordinator and stays until the stream ends. The status is never OK unless we
  // are stopping.
  absl::Status RunSession();
  void NoteWelcome();
  // Waits until the session has ended (or, if not `until_session_end`, until we are stopping) or
  // `timeout`, beating meanwhile. False: `timeout` passed.
  bool WaitTicking(bool until_session_end, absl::Duration timeout);
  // True when the error is final; calls on_fatal.
  bool IsFatal(const absl::Status& status, bool welcomed);
  void LogFailure(const absl::Status& status, bool welcomed);
  // The token for the present coordinator; kFailedPrecondition: its file cannot be used.
  absl::StatusOr<rpc::Credentials> FindCredentials() const;
  bool stopping() const;

  Options options_;
  TaskTable& table_;
  Clock& clock_;
  const std::function<void()> tick_;
  const std::function<void(const absl::Status&)> on_fatal_;

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool session_ended_ ABSL_GUARDED_BY(mu_) = false;
  Counters counters_ ABSL_GUARDED_BY(mu_);

  // Used by the thread only (the channel is dropped by the destructor).
  // Kept until the next one is in use: gRPC starts and ends its threads with the first and the last
  // channel.
  std::shared_ptr<grpc::Channel> channel_;
  rpc::Backoff backoff_;
  absl::Duration next_tick_;
  absl::Duration lost_at_;  // when the last stream ended; before the first: when the agent began
  absl::Duration name_taken_since_ = absl::InfiniteDuration();
  bool ever_welcomed_ = false;
  bool dialled_ = false;    // the last attempt came so far
  bool has_token_ = false;  // its stream had one
  std::string last_logged_;

  std::thread thread_;
};

}  // namespace hearth::worker
