// The event loop: the one thread that owns the core. It takes commands from a bounded queue,
// applies as many as are waiting (up to a limit), makes their effects durable in ONE commit, and
// only then lets anybody know: view and metrics, then replies, then messages to agents. A table
// says what does not wait for that (core/uncommitted.h): values of the rendezvous leave at once,
// and a batch of mere reports waits a little for the next commit (core/group_commit.h).
//
// When a commit fails, core and disk no longer agree. The loop then answers every command of the
// batch with the error, stops for good and calls `on_fatal`: the process is to end, with its
// message, and to start again from the disk. Workers train on meanwhile.
//
// Scheduling happens in Tick alone and costs time in proportion to the queue. The loop gives it at
// most about a fifth of its time: with a few jobs every batch is scheduled at once, with tens of
// thousands waiting a plan is made several times a second.
//
// A command is applied as of the moment at which it came, not of the one at which the loop got to
// it: while a slow disk holds up a commit, streams are read on, and a worker that says nothing all
// that time is as silent as it is. Only streams with many reports are held back meanwhile; after a
// long commit they get a second before a Tick judges who is silent. Jobs are planned without delay.
//
// To keep a filling disk from failing a commit, commands that need the disk
// (CommandRow::needs_disk) are refused with RESOURCE_EXHAUSTED, unapplied, while less than
// `min_free_bytes` are free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/core/group_commit.h"
#include "coordinator/service/agents/agent_hub.h"
#include "coordinator/service/agents/inspector.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/view/view.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {

struct LoopOptions {
  CoreOptions core;        // generation is taken from the store
  size_t batch_max = 512;  // commands a batch; of reports that wait, so many are committed at once
  size_t queue_max =
      8192;  // waiting commands of users; agents are limited by their streams' flow control
  int64_t min_free_bytes = 16 << 20;
};

class Loop {
 public:
  // Called on the loop's thread after the commit, or at once on the caller's when the command is
  // refused unseen. A command without an answer is done when it is applied.
  using Done = std::function<void(const Reply&)>;
  // Answers Effects::inspections; called on the loop's thread, must not block.
  using Inspect = std::function<void(const InspectionRequest&)>;

  // All references outlive the loop. Restores the core from `state` and fills `view`.
  Loop(const LoopOptions& options,
       Clock& clock,
       Store& store,
       const LoadedState& state,
       View& view,
       AgentHub& hub,
       Inspector& inspector,
       CoordinatorMetrics& metrics);
  ~Loop();

  // Delivers Effects::deliveries; called on the loop's thread, must not block.
  using Deliver = std::function<void(DeliveryRequest)>;
  // Called on the loop's thread, must not block: before a command that somebody asked for is
  // applied, with its target if that is a job. An error is the answer, and nothing is applied.
  using Recheck = std::function<absl::Status(const Origin&, const v1::JobRecord*)>;

  // `on_turn` is called on the loop's thread at least once a second; it must not block.
  void Start(Inspect inspect,
             Deliver deliver,
             std::function<void(const absl::Status&)> on_fatal,
             std::function<void()> on_turn = nullptr,
             Recheck recheck = nullptr);
  // Finishes what is queued, refuses what comes later, and joins the thread.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Thread-safe. UNAVAILABLE when stopping or full.
  void Post(Command command, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Thread-safe. Agents' commands: never refused for fullness.
  void PostFromAgent(Command command, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Thread-safe. Puts a call that was refused for who made it into the audit log. `left_out`: how
  // many before it were not written down. Dropped when the queue is full.
  void NoteRefusal(const Origin& origin, const absl::Status& status, int64_t left_out)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Thread-safe. Puts a call that the core has no command for into the audit log. Dropped when the
  // queue is full.
  void NoteCall(const Origin& origin, const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mu_) {
    NoteRefusal(origin, outcome, 0);
  }
  // Thread-safe. Runs `query` between two batches; null when the loop has stopped.
  void Query(std::function<void(const Core*)> query) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Item {
    Command command;
    Done done;
    std::function<void(const Core*)> query;
    std::optional<v1::AuditRecord> refusal;
    Now arrived = {};
  };

  void Run();
  bool WaitForWork() ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<Item> TakeBatch() ABSL_LOCKS_EXCLUDED(mu_);
  using Replies = std::vector<std::pair<Done, Reply>>;
  void Process(std::vector<Item> items);
  // Applies the items, as many as belong into one commit; the others are held back.
  std::vector<Effects> ApplyAll(std::vector<Item>& items, Replies& replies);
  void TickIfDue(std::vector<Effects>& effects);
  // Makes what waits durable and lets know. False: that failed, and the loop has stopped.
  bool CommitWaiting(const Replies& replies);
  Effects Apply(const Item& item);
  Effects AuditOf(v1::AuditRecord record);
  absl::Status DiskFull(int64_t free_bytes) const;
  void Enqueue(Item item, bool limited) ABSL_LOCKS_EXCLUDED(mu_);
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void LetKnow(std::vector<Effects>& effects);
  void NameUnknownTasks(const Command& command) const;
  // When the next Tick is due and allowed.
  absl::Duration NextTick() const { return std::max(core_.NextDeadline(), tick_allowed_); }
  Now ReadClock();
  // When it came, or the core's time if that is later.
  Now TimeOf(const Item& item);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !queue_.empty(); }

  const LoopOptions options_;
  Clock& clock_;
  Store& store_;
  View& view_;
  AgentHub& hub_;
  Inspector& inspector_;
  CoordinatorMetrics& metrics_;
  Inspect inspect_;
  Deliver deliver_;
  std::function<void(const absl::Status&)> on_fatal_;
  std::function<void()> on_turn_;
  Recheck recheck_;
  int64_t last_audit_;  // number of the newest record; of the loop's thread
  // Both of the loop's thread. A Tick is as of the moment at which its batch was taken: all that
  // came before is applied, unless the batch is full.
  Now taken_;
  Now applied_;          // time of the last command
  Core core_;            // of the loop's thread once started
  GroupCommit commits_;  // of the loop's thread
  absl::Duration tick_allowed_ = -absl::InfiniteDuration();
  absl::Duration judge_from_ = -absl::InfiniteDuration();  // Tick::judge_from
  std::deque<Item>
      held_back_;  // of the loop's thread: the rest of a batch that a deletion cut short
  std::thread thread_;

  absl::Mutex mu_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hearth::coordinator
