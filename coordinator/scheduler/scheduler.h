// Which gangs start, which stop, and why the rest waits. A pure function of (view, now).
//
// Rules
//  - Gang: a job gets at least min_workers workers or none, at most `workers`; all of one
//    device kind and one version of hearth-worker, all with the selector's labels, all seeing one
//    checkpoint root (the checkpoint's, for a resume), on one host if span_hosts is false, all with
//    more device memory than any GPU that was too small for the job.
//  - Order: by turn, which is the submit time, earlier by ClusterView::aging for each level of
//    priority. So higher priority goes first, except before a job that has waited so much longer.
//  - No starvation: a job is overtaken only by jobs of higher priority that are submitted within
//    (difference of priorities) * aging after it. From then on it waits for jobs ahead of it alone,
//    which are finitely many, and nobody takes its workers away again.
//  - Backfill: a job that waits for workers that exist (busy, or gone for less than
//    ClusterView::return_grace) reserves every worker that it could use. Run times are unknown,
//    so anything less could delay it. Later jobs take only workers that no earlier waiting job
//    could use. A job that wants more workers than exist reserves nothing, because it cannot
//    start in any case.
//  - A job that is ending and will start again (its other ranks are being killed, it is being
//    moved) keeps its place: as many workers as it may start on are held for it, its own first.
//    Else a later job would take those that its first ranks have left, and it would wait for that
//    job's end.
//  - Preemption: a waiting job takes workers from jobs of strictly lower priority that are behind
//    it in the order, lowest and youngest first, as few as give it min_workers, by checkpoint and
//    requeue. No loops: the victim sorts behind the job that it made room for.
//  - Elastic: a gang starts with what is free, from min_workers on. It grows (requeue
//    "resized") when no job waits for the spare workers, its gang is older than
//    resize_interval, the spare workers have been free for resize_settle, and a checkpoint was
//    just recorded, so that little work is repeated. W ranks are legal for 1 <= W <= sequences
//    per global batch (rank r takes micro-batches r, r + W, ...).
//  - Drain: a running job with a rank on a draining worker is requeued; it starts again where
//    there is room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/scheduler/demand.h"
#include "coordinator/scheduler/visits.h"
#include "coordinator/scheduler/waiting_lines.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

struct WorkerView {
  const v1::Worker* worker = nullptr;  // worker_id, host, device, labels, root_uuid; never null
  bool usable = false;                 // connected and healthy, not cordoned, draining or stopping
  bool expected = false;               // not usable now, but was until less than return_grace ago
  bool draining = false;
  bool stopping = false;      // its daemon was asked to end; for the reason text
  bool unhealthy = false;     // connected or not; for the reason text
  std::string busy_with;      // job whose rank, or whose dying process, is there; empty = free
  absl::Duration idle_since;  // monotonic; meaningful while free
};

enum class JobPhase {
  kWaiting,   // QUEUED, or RECOVERING with all old ranks gone
  kRunning,   // STARTING or RUNNING: may be asked to stop
  kStopping,  // frees its workers soon
  kReturns,   // the same, and then it is kWaiting
};

struct JobView {
  std::string job_id;
  const v1::JobSpec* spec = nullptr;  // resolved; never null
  JobPhase phase = JobPhase::kWaiting;
  absl::Time queue_time;             // when it was submitted, see PlaceInQueue
  std::string root_uuid;             // root of the checkpoint to resume from; empty = none
  int64_t checkpoint_step = 0;       // for the reason text
  int64_t too_small_bytes = 0;       // as in v1::JobRecord
  std::vector<std::string> workers;  // of the gang, if not kWaiting
  absl::Duration started;            // monotonic start of the gang, if running
  bool at_checkpoint = false;        // running, and a checkpoint of this epoch was just recorded
  bool movable = true;               // running, and every rank can hear us
};

struct ClusterView {
  std::vector<WorkerView> workers;
  std::vector<JobView> jobs;              // those with a gang; may hold any others
  const WaitingLines* waiting = nullptr;  // jobs that are not in `jobs`; null = none
  absl::Duration aging = kDefaultAging;   // see PlaceInQueue
  absl::Duration resize_interval = absl::Minutes(5);
  absl::Duration resize_settle = absl::Seconds(30);
};

struct StartDecision {
  std::string job_id;
  std::vector<std::string> workers;  // rank order: host, PCI order, device index, id
};
struct RequeueDecision {
  std::string job_id;
  std::string reason_code;  // preempted | drained | resized
  std::string reason;
};
struct WaitDecision {
  std::string job_id;
  std::string reason_code;
  std::string reason;
};
// The rest of a line waits, too.
struct LineDecision {
  Demand demand;
  WaitText text;
};
struct Decisions {
  std::vector<StartDecision> starts;
  std::vector<RequeueDecision> requeues;
  // In queue order: the jobs of ClusterView::jobs that wait, and of each line the first that does.
  std::vector<WaitDecision> waits;
  std::vector<LineDecision> lines;  // where a job behind the first one waits
};

// `now` is monotonic.
Decisions Plan(const ClusterView& view, absl::Duration now);

// `visits` is added to.
Decisions Plan(const ClusterView& view, absl::Duration now, Visits& visits);

// Most of the workers that could be one gang of that demand, whatever state they are in now.
int64_t LargestGang(const std::vector<const v1::Worker*>& workers, const Demand& demand);

}  // namespace hearth::coordinator
