// The coordinator's brain: jobs, workers, gangs, leases and epochs as one deterministic state
// machine. Pure: no gRPC, no SQL, no files, no clock, no randomness, no threads. Everything comes
// in through Apply().
//
// clang-format off
//
//   create ─▶ QUEUED ──────▶ STARTING ──first step──▶ RUNNING ──all ranks finished──▶ SUCCEEDED
//             ▲ │ ▲ ▲           │ ▲                    │ │ │
//      resume │ │ │ │ too few   │ │ epoch + 1          │ │ └─ fatal exit, max_restarts ─▶ FAILED
//             │ │ │ │ workers   ▼ │                    │ │
//             │ │ │ └─────── RECOVERING ◀──rank lost───┘ │
//             │ │ │     (until the old ranks are gone)   │
//             │ │ └──── REQUEUEING ◀── preempt, drain, resize
//             │ │                                        │
//             │ └─▶ PAUSED ◀────── PAUSING ◀── pause ────┤
//             │                                          │
//             ├── PAUSED, CANCELLED, FAILED   CANCELLING ◀── cancel, time limit
//             └── SUCCEEDED, with more steps      │
//                                                 └─▶ CANCELLED (FAILED by the time limit)
//
// clang-format on
//   (all edges: kTransitions in transitions.cc; an edge that is not there ends the process)
//
// Epochs. `job.epoch` is the number of gang starts. It grows only on the edge into STARTING, so
// while a job is RECOVERING, PAUSING, REQUEUEING or CANCELLING the ranks of the present epoch still
// report and are believed, and from STARTING on the old ones never are. A rank is *gone* when its
// TaskExit was applied, its worker came back as another incarnation or said goodbye, or its worker
// was declared lost. One that is *dying* (TaskDying: it will compute no more, but its processes
// still hold the device) is not gone, but the others are killed as if it were: a driver may be
// unable to end it before them. A lost rank is fenced: what it still says is acknowledged and
// ignored, and its process is killed when its worker returns. A worker takes no new task before
// that.
//
// Exactly once. Reports are applied in order of seq per (job, epoch, rank); the last applied seq is
// part of JobRecord, so it commits with the report's effects. Duplicates are acknowledged again; a
// gap that the agent's Hello does not explain closes the connection, and the agent resends from its
// first unacknowledged report.
//
// Key-value space. KvPut is a report and its rows are stored (Effects::kv_puts), so a coordinator
// restart in mid-rendezvous restarts no gang: waits are asked again by the agents and answered from
// the restored rows, or from a put that its agent sends again. Answers do not wait for the commit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/core/core_commands.h"
#include "coordinator/core/moment.h"
#include "coordinator/scheduler/visits.h"
#include "coordinator/scheduler/waiting_lines.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/store.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// -------------------------------------------------------------------------------------------------
// Effects. Rows, history and log are to be made durable as one batch (the effects of several
// commands may share one, in order); replies and messages go out after that, except for those that
// the table in uncommitted.h lets go before. After a failed commit the process ends.

struct JobRow {
  v1::JobRecord record;
  bool durable = true;  // false: only derived text changed (a waiting job's reason); readers want
                        // it, the disk need not
};
struct WorkerRow {
  v1::WorkerRecord record;
  bool durable = true;  // false: liveness, task or device status changed
};
struct HistoryAppend {
  std::string job_id;
  v1::MetricRecord record;  // cursor set: the job's previous + 1
};
struct LogAppend {
  std::string job_id;
  std::vector<v1::LogLine> lines;  // cursors set
  int64_t dropped = 0;  // lines that the agent lost before these, or our bounds among them
};
struct OutgoingMessage {
  uint64_t connection_id = 0;
  std::string worker_id;
  std::string incarnation;
  v1::CoordinatorMessage message;  // generation set
};
struct CloseConnection {
  uint64_t connection_id = 0;
  absl::Status status;  // what the stream ends with; the agent reconnects
};
// The caller asks that worker (InspectPaths), completes and checks the spec, and comes back with
// InspectionDone.
struct InspectionRequest {
  std::string job_id;
  std::string etag;
  uint64_t connection_id = 0;
  std::string worker_id;
  v1::JobSpec spec;
};
// The caller delivers it and comes back with DeliveryDone.
struct DeliveryRequest {
  std::string job_id;
  std::string id;       // Notification.id
  std::string url;      // either this
  std::string command;  // or this
  std::string body;     // JSON
};
struct Reply {
  absl::Status status;  // with a google.rpc.ErrorInfo payload if not OK
  std::optional<v1::Job> job;
  std::optional<v1::Worker> worker;
  std::optional<v1::DeleteJobResponse> deleted = std::nullopt;
  std::optional<v1::DeclareLostResponse> declared = std::nullopt;
  std::optional<v1::PruneCheckpointsResponse> pruned = std::nullopt;
  std::optional<v1::Token> token = std::nullopt;
};

// A checkpoint was recorded that took this long to write.
struct CheckpointWrite {
  std::string job_id;
  double seconds = 0;
};

// Records of the audit log that a coordinator keeps in memory, for ListAudit: of calls that were
// let in, and of refusals. The store has more.
inline constexpr int64_t kAuditShown = 10'000;
inline constexpr int64_t kRefusalsShown = 1'000;
// A call that was refused for who made it.
inline bool IsRefusal(const v1::AuditRecord& record) {
  return record.outcome() == "PERMISSION_DENIED" || record.outcome() == "UNAUTHENTICATED";
}

struct Effects {
  std::vector<JobRow> jobs;              // at most one per job; final state after the command
  std::vector<std::string> job_deletes;  // row, events, history, log, requests stay
  // Revisions strictly increasing without gaps over the life of the store.
  std::vector<v1::JobEvent> events;
  std::vector<HistoryAppend> history;
  std::vector<LogAppend> logs;
  std::vector<WorkerRow> workers;
  std::vector<std::string> worker_deletes;
  std::vector<v1::RequestRecord> requests;
  std::vector<std::string> request_deletes;
  std::vector<std::string> kv_clears;    // job ids; to be done before kv_puts
  std::vector<v1::KvRecord> kv_deletes;  // without values; before kv_puts
  std::vector<v1::KvRecord> kv_puts;
  std::vector<std::string> token_deletes;  // names; before token_puts
  std::vector<v1::TokenRecord> token_puts;
  std::vector<v1::AuditRecord> audit;  // numbers strictly increasing over the life of the store
  // After the commit, in order per connection, or early (uncommitted.h). A closed one drops its.
  std::vector<OutgoingMessage> messages;
  std::vector<CloseConnection> closes;  // after the messages
  std::vector<InspectionRequest> inspections;
  std::vector<DeliveryRequest> deliveries;
  std::optional<Reply> reply;  // of commands that have one
  bool planned = false;        // a Tick in which the scheduler planned
  Visits visits;               // what the command has cost
  std::vector<CheckpointWrite> checkpoint_writes;
  std::vector<std::string> delivery_outcomes;  // delivered | failed (one attempt) | abandoned

  // Nothing that needs a commit (uncommitted.h).
  bool NothingDurable() const;
};

// What the store loaded. Logs and histories have been cut back to the cursors in the records.
struct RestoredState {
  std::vector<v1::JobRecord> jobs;
  std::vector<v1::WorkerRecord> workers;
  std::vector<v1::RequestRecord> requests;
  std::vector<v1::KvRecord> kv;
  std::vector<v1::TokenRecord> tokens;
  int64_t last_revision = 0;
};

struct CoreOptions {
  int64_t generation = 1;  // incremented durably by the store at each start
  absl::Duration heartbeat = absl::Milliseconds(500);
  // Without heartbeat and progress = lost. A worker that hears nothing any more is heard up to a
  // heartbeat later, so this and a heartbeat are well within 5 s. A stall of 3.5 s is no loss even
  // if it began just before a heartbeat; TCP then has sent a lost packet again (after 3.1 s).
  absl::Duration silence = absl::Seconds(4);
  // The same for a worker whose stream has ended and who does not dial again. Its process is gone
  // or cannot reach us; a stream breaks at once when a daemon is killed.
  absl::Duration disconnect_silence = absl::Seconds(3);
  absl::Duration reattach_grace = absl::Seconds(30);  // after a start nobody is silent
  // After this long a worker counts as silent if the peers it is compared with are back: see
  // PeersAreBack(). Longer than a daemon takes to dial again (about 5 s at worst).
  absl::Duration reattach_prompt = absl::Seconds(8);
  absl::Duration isolation_grace = absl::Minutes(10);  // cut off from the workers: recover nothing
  // A live worker that does not confirm a kill for this long is unhealthy.
  absl::Duration kill_timeout = absl::Seconds(60);
  // From the moment all ranks of a gang have come to the rendezvous until they are connected; else
  // they are started again.
  absl::Duration rendezvous_timeout = absl::Seconds(60);
  // Longest time that a rank loads (data, model, plans) before and after the rendezvous.
  absl::Duration loading_timeout = absl::Minutes(30);
  // For this long a vanished worker still counts as existing for the queue's head.
  absl::Duration return_grace = absl::Seconds(60);
  absl::Duration aging = kDefaultAging;               // of waiting jobs, see PlaceInQueue
  absl::Duration resize_interval = absl::Minutes(5);  // shortest life of a gang before a resize
  absl::Duration resize_settle = absl::Seconds(30);   // a spare worker must be free for this long
  absl::Duration request_ttl = absl::Hours(24);
  size_t max_requests = 1 << 18;  // answers remembered; beyond it the oldest are forgotten early
  size_t max_jobs = 100'000;      // kept, whatever their state; more: RESOURCE_EXHAUSTED
  size_t max_workers = 16'384;    // known, connected or not; more: RESOURCE_EXHAUSTED
  // Limits of a job's log, all ranks together. Workers have a limit of their own; this one is for
  // those that do not keep to it. The burst lets in the buffers that filled while the coordinator
  // was down.
  double log_bytes_per_second = 2 << 20;
  double log_burst_bytes = 64 << 20;
  // A RUNNING job without a step for this long is stuck: people are told.
  absl::Duration stuck = absl::Minutes(10);
  // Receivers of notifications of all jobs, and what job files may name: docs/notify.md.
  std::vector<v1::NotifySpec> notify = {};
  std::set<std::string, std::less<>> notify_commands = {};
  std::vector<std::string> notify_url_prefixes = {};  // empty = any URL
  absl::Duration worker_ttl = absl::Hours(24);        // offline workers without flags are forgotten
};

// "Fine Web/112M", "k3x9q" -> "fine-web-112m-k3x9q"; at most 63 characters.
std::string MakeJobId(const std::string& name, const std::string& suffix);

struct CoreAssembly;  // all parts (core.cc)

// Not thread-safe: one event-loop thread owns it.
class Core {
 public:
  // `now` is the moment from which reattach_grace counts.
  Core(const CoreOptions& options, const RestoredState& state, Now now);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Never fails as a whole; a refused command has reply.status set and no other effect.
  // `now.monotonic` never goes back.
  Effects Apply(const Command& command, Now now);

  // Monotonic time at which Tick is due at the latest; in the past when there is something to
  // schedule. At most 1 s after the last Apply.
  absl::Duration NextDeadline() const;

  // Null when unknown. Valid until the next Apply. Derived fields are up to date as of the last
  // Apply.
  const v1::JobRecord* FindJob(const std::string& job_id) const;
  const v1::WorkerRecord* FindWorker(const std::string& worker_id) const;
  // All, ordered by id.
  std::vector<const v1::JobRecord*> Jobs() const;
  std::vector<const v1::WorkerRecord*> Workers() const;
  // A connected, healthy worker with the spec's device kind and labels that may answer
  // InspectPaths; nullopt when there is none.
  struct Eligible {
    std::string worker_id;
    uint64_t connection_id = 0;
    std::string root_uuid;
  };
  std::optional<Eligible> FindInspector(const v1::JobSpec& spec) const;
  // A connected worker that sees the checkpoint, and the checkpoint's folder there; nullopt when
  // there is none.
  struct Reader {
    std::string worker_id;
    uint64_t connection_id = 0;
    std::string folder;
    std::string device;  // its name
  };
  std::optional<Reader> FindReader(const v1::Checkpoint& checkpoint) const;
  // The workers that see the checkpoint and that nothing keeps from other work, those with a GPU
  // first; and for each of the others why not, for people. `worker_id` not empty: that one alone.
  struct IdleReaders {
    std::vector<Reader> idle;
    std::string others;
  };
  IdleReaders FindIdleReaders(const v1::Checkpoint& checkpoint, const std::string& worker_id) const;

  int64_t last_revision() const;
  const CoreOptions& options() const;
  // Takes itself to be cut off from its workers; recovers nothing.
  bool isolated() const;

  // Notifications of all jobs that are not delivered yet.
  int64_t pending_notifications() const;

  // Events counted since the start, for /metrics: by reason code. E.g. "worker_lost", "preempted",
  // "trainer_failed".
  const std::map<std::string, int64_t>& reason_counts() const;

 private:
  std::unique_ptr<CoreAssembly> parts_;
};

}  // namespace hearth::coordinator
