// Server streams that follow a job: pull, not push. The next message is made only when the one
// before has been written, from wherever the stream stands by then; so a slow reader costs one
// message of memory, skips intermediate states, and slows nobody.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/service/loop/executor.h"
#include "coordinator/service/view/view.h"
#include "grpcpp/support/server_callback.h"

namespace hearth::coordinator {

inline constexpr size_t kStreamsMax = 1024;
// For one address, so that no client takes them all.
inline constexpr size_t kStreamsPerPeer = 256;

// What all streams have in common, to bound and to end them.
class StreamBase : public Waker {
 public:
  virtual void EndWith(const absl::Status& status) = 0;
};

// Thread-safe.
class StreamSet {
 public:
  // kResourceExhausted: there are too many already, or too many of `peer` (an address); that of
  // CloseAll once it was called.
  absl::Status Add(const std::weak_ptr<StreamBase>& stream, const std::string& peer)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    std::erase_if(streams_, [](const Entry& entry) { return entry.stream.expired(); });
    if (!closed_.ok()) {
      return closed_;
    }
    const auto of_peer = static_cast<size_t>(std::count_if(
        streams_.begin(), streams_.end(), [&](const Entry& entry) { return entry.peer == peer; }));
    if (streams_.size() >= kStreamsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("streams: ", kStreamsMax, " are open, which is the limit"));
    }
    if (of_peer >= kStreamsPerPeer) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "streams: ", kStreamsPerPeer, " of this address are open, which is the limit"));
    }
    streams_.push_back({stream, peer});
    return absl::OkStatus();
  }
  // Ends all streams and refuses new ones, with `status`, which is an error.
  void CloseAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<Entry> streams;
    {
      absl::MutexLock lock(&mu_);
      closed_ = status;
      streams.swap(streams_);
    }
    for (const Entry& entry : streams) {
      if (const std::shared_ptr<StreamBase> stream = entry.stream.lock()) {
        stream->EndWith(status);
      }
    }
  }

 private:
  struct Entry {
    std::weak_ptr<StreamBase> stream;
    std::string peer;
  };

  absl::Mutex mu_;
  std::vector<Entry> streams_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
};

// Keeps itself alive from Start until gRPC is done with it.
template <typename Response>
class StreamReactor : public grpc::ServerWriteReactor<Response>,
                      public StreamBase,
                      public std::enable_shared_from_this<StreamReactor<Response>> {
 public:
  explicit StreamReactor(Executor& executor) : executor_(executor) {}

  // Ends at once with `allowed` if that is an error. `peer` is the client's address.
  void Start(StreamSet& streams, const std::string& peer, absl::Status allowed) {
    self_ = this->shared_from_this();
    allowed.Update(allowed.ok() ? streams.Add(self_, peer) : allowed);
    if (!allowed.ok()) {
      EndWith(allowed);
      return;
    }
    Wake();
  }

  void Wake() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      woken_ = true;
      // Nothing is lost: a Pump that runs sees woken_, and OnWriteDone begins another one.
      if (scheduled_ || writing_ || finished_) {
        return;
      }
      scheduled_ = true;
    }
    Schedule();
  }

  // As soon as the present write is done.
  void EndWith(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (finished_) {
        return;
      }
      if (!ending_) {
        ending_ = true;
        end_status_ = status;
      }
      // They see ending_ and end the call themselves.
      if (scheduled_ || writing_) {
        return;
      }
      finished_ = true;
    }
    this->Finish(rpc::ToGrpc(status));
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (!ok && !ending_) {
        ending_ = true;
        end_status_ = absl::CancelledError("the client has gone");
      }
      scheduled_ = true;
    }
    Schedule();
  }

  void OnCancel() override { EndWith(absl::CancelledError("the client has gone")); }

  void OnDone() override {
    const std::shared_ptr<StreamReactor> self = std::move(self_);  // dies with this scope
  }

 protected:
  enum class Next { kWrite, kWait, kEnd };
  // Fills `response` (which is empty) with what comes next, or says to wait for a wake-up, or ends
  // with `status`. Called on the executor, one call at a time.
  virtual Next Produce(Response& response, absl::Status& status) = 0;

 private:
  void Schedule() {
    if (!executor_.Submit([self = this->shared_from_this()] { self->Pump(); })) {
      Pump();  // the executor has stopped: the stream is ending anyway
    }
  }

  void Pump() ABSL_LOCKS_EXCLUDED(mu_) {
    for (;;) {
      {
        absl::MutexLock lock(&mu_);
        // Cleared before Produce looks: a wake-up during it is seen below and leads to another
        // look.
        woken_ = false;
        if (ending_) {
          break;
        }
      }
      response_.Clear();
      absl::Status status;
      const Next next = Produce(response_, status);
      absl::ReleasableMutexLock lock(&mu_);
      if (next == Next::kEnd && !ending_) {
        ending_ = true;
        end_status_ = status;
      }
      if (ending_) {
        break;
      }
      if (next == Next::kWait && woken_) {
        continue;
      }
      scheduled_ = false;
      if (next == Next::kWait) {
        return;
      }
      // OnWriteDone goes on from here, perhaps before StartWrite has returned: nothing is touched
      // after it.
      writing_ = true;
      lock.Release();
      this->StartWrite(&response_);
      return;
    }
    absl::Status status;
    {
      absl::MutexLock lock(&mu_);
      scheduled_ = false;
      finished_ = true;
      status = end_status_;
    }
    this->Finish(rpc::ToGrpc(status));
  }

  Executor& executor_;
  std::shared_ptr<StreamReactor> self_;
  Response response_;

  absl::Mutex mu_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool scheduled_ ABSL_GUARDED_BY(mu_) = false;  // a Pump is queued or runs
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
