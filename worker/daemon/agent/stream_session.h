// One agent stream, from Hello to its end. The only user of gRPC's reactor.
#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/bearer.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "worker/daemon/supervise/task_table.h"

namespace hearth::worker {

// Thread-safe. Must live from Start() until `on_done` is called, and must not be destroyed on a
// thread of gRPC: dropping the last channel there makes gRPC wait for that very thread.
class StreamSession : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  // `credentials` go with the stream. `table` outlives the object. `on_done` is called once, on a
  // gRPC thread, as the last thing; the object may be destroyed from then on.
  StreamSession(std::shared_ptr<grpc::Channel> channel,
                const rpc::Credentials& credentials,
                TaskTable& table,
                std::function<void()> on_done);

  // Opens the stream and says Hello.
  void Start();

  // Sends what the table has ready. May come at any time, even before Start(): Hello still goes
  // first.
  void Kick();

  // Half-closes once the write in progress is done; nothing more is sent. The coordinator then ends
  // the stream.
  void Finish();

  // Ends the stream at once.
  void Cancel(const absl::Status& why);

  // How the stream ended, details included; to be called after `on_done`.
  absl::Status status() const;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void Pump();
  // No write starts after this.
  void Close();

  const std::unique_ptr<v1::AgentService::Stub> stub_;
  TaskTable& table_;
  std::function<void()> on_done_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;  // of the read in progress

  mutable absl::Mutex mu_;
  v1::AgentMessage outgoing_ ABSL_GUARDED_BY(mu_);  // of the write in progress
  // Hello counts as a write in progress even before Start(): no other write may begin until the
  // stream exists, but other threads may kick as soon as the table knows us.
  bool writing_ ABSL_GUARDED_BY(mu_) = true;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;
  bool kicked_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status local_status_ ABSL_GUARDED_BY(mu_);  // why we cancelled; OK = we did not
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::worker
