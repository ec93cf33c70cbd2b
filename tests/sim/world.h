// A small world around the real coordinator core: a store that keeps only what was committed (in
// one mode the real one, on a disk that loses power), a network that delays, cuts in both
// directions or in one, drops and repeats, users whose commands overtake each other, wall clocks
// that jump, worker daemons that crash and come back, gangs that train in lockstep, receivers of
// notifications that fail or take long, and jobs that wait for a time or for another job. Commits
// are made as the event loop makes them: some messages leave before, reports wait for the next one,
// and a crash takes back what waited. All from one seed, on a FakeClock.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/core/group_commit.h"
#include "tests/support/common/fake_clock.h"

namespace hearth::sim {

namespace core = hearth::coordinator;

using TaskKey = std::pair<std::string, int64_t>;  // job id, epoch

enum class Mode {
  kEverything,    // all faults, all commands
  kDisk,          // ... on the real store, whose disk loses power at any write
  kControlPlane,  // coordinator crashes, stalls and broken streams alone: no job may notice
  kCutOff,        // ... and the coordinator's network, to all workers at once: no job may notice
  kCalm,          // no faults
};

// Rows as SQLite would hold them; a crash leaves exactly this.
struct Store {
  std::map<std::string, v1::JobRecord> jobs;
  std::map<std::string, v1::WorkerRecord> workers;
  std::map<std::string, v1::RequestRecord> requests;
  std::map<std::string, std::map<std::string, v1::KvRecord>> kv;
  std::map<std::string, std::vector<v1::MetricRecord>> history;
  std::map<std::string, v1::JobState> last_state;  // by events
  std::map<std::string, int64_t> log_cursor;
  std::map<std::string, int64_t> log_lines;  // "job epoch rank" -> number in the last line
  int64_t revision = 0;

  core::RestoredState Load() const;
};

struct Task {
  v1::Task task;
  bool running = true;
  int64_t step = 0;
  int64_t next_seq = 1;
  std::deque<v1::TaskReport> unacked;
  std::set<std::string> waits;  // keys asked for and not answered
};

struct Daemon {
  std::string name;
  std::string host;
  std::string root_uuid;
  int index = 0;
  std::string incarnation;
  bool up = false;
  bool mute = false;  // what it sends is lost
  bool deaf = false;  // what is sent to it is lost
  bool unhealthy = false;
  bool stopping = false;  // asked to end: takes no task
  uint64_t link = 0;      // 0 = none
  bool welcomed = false;
  int64_t generation = 0;
  std::map<TaskKey, Task> tasks;
};

struct Link {
  Daemon* daemon = nullptr;
  std::string incarnation;
  bool open = true;
  absl::Duration to_coordinator;  // no message arrives before the one sent earlier
  absl::Duration to_agent;
};

struct Rank {
  Daemon* daemon = nullptr;
  bool alive = false;
  bool leaving = false;  // an orderly exit is under way
  std::set<std::string> keys;
  int64_t log_lines = 0;  // each line says its number
};

struct Gang {
  std::vector<Rank> ranks;
  int64_t step = 0;
  int64_t total = 0;
  int64_t every = 0;
  int bit = 0;
  bool stepping = false;
};

class Durable;

class World {
 public:
  World(uint64_t seed, Mode mode);
  ~World();

  // Runs to the end; empty if all invariants held, else what broke and when.
  std::string Run();

  // Prints events and faults as they happen.
  void Trace() { trace_ = true; }

  int64_t commands() const { return commands_; }
  int64_t epochs() const { return epochs_; }
  absl::Duration virtual_time() const { return end_; }
  // Reason codes of all transitions, counted.
  const std::map<std::string, int64_t>& reasons() const { return reasons_; }
  // Starts ahead of a job that was submitted earlier and waits, as its lower priority allows.
  int64_t overtakings() const { return overtakings_; }
  // Starts ahead of a waiting job of higher priority that was submitted too late to overtake.
  int64_t aged() const { return aged_; }
  // Notifications that were owed and came, and those that were given up as their URLs are refused.
  int64_t told() const { return told_; }
  int64_t refused() const { return refused_; }
  // Jobs that have succeeded and were resumed with more steps.
  int64_t extended() const { return extended_; }
  // Messages that left before a commit which a crash then prevented.
  int64_t unbacked() const { return unbacked_; }
  // First starts of jobs that had to wait for a time or for another job.
  int64_t started_after_waiting() const { return started_after_waiting_; }

 private:
  // world.cc: time, chance, the coordinator and its clients.
  void After(absl::Duration delay, std::function<void()> what);
  bool Chance(double p);
  int64_t Pick(int64_t low, int64_t high);
  absl::Duration Ms(int64_t low, int64_t high) { return absl::Milliseconds(Pick(low, high)); }
  core::Now Now();
  void Fail(const std::string& what);
  void Say(const std::string& what) const;
  void StartCoordinator();
  core::RestoredState Restore();
  void CrashCoordinator();
  // A coordinator's commit is due at a time of its own.
  void CommitIfDue(int64_t generation);
  // Commits all that waits; nullopt: the coordinator ended meanwhile.
  struct Committed {
    std::vector<core::Effects> effects;
    std::vector<std::function<void(const core::Reply&)>> answers;  // of each
  };
  std::optional<Committed> Persist();
  void Tick(int64_t generation);
  void Give(core::Command command, std::function<void(const core::Reply&)> answer = nullptr);
  void Continue();
  // After the commit: what leaves then.
  void Carry(const Committed& committed);
  void Carry(const core::Effects& effects);
  void Submit(int index);
  void Fault();
  // No packet gets through for a while, or in one direction, to this worker or to all.
  void CutOff(Daemon& daemon, bool all, absl::Duration length);
  void UserAction();
  // As the service does it: a resume that brings a changed spec.
  core::ResumeJob WithMoreSteps(const std::string& job_id);
  // A user's command takes a while to arrive, and may arrive twice.
  void Send(const core::Command& command);
  bool AllFaults() const { return mode_ == Mode::kEverything || mode_ == Mode::kDisk; }
  void Heal();
  void CheckDone();
  std::string Dump() const;

  // invariants.cc
  void Commit(const core::Effects& effects);
  void CheckEvent(const v1::JobEvent& event);
  void CheckHistory(const core::HistoryAppend& append);
  void CheckLogs(const core::LogAppend& append);
  void CheckCore(bool after_tick);
  // No waiting job is overtaken by jobs that came too late for their priority.
  void CheckOrder(const core::Effects& effects);
  // No gang begins on a worker that has told this coordinator that it is ending.
  void CheckStarts(const core::Command& command, const core::Effects& effects);
  void CheckStart(const v1::JobRecord& started);
  void CheckPreempted(const v1::Job& victim);
  bool ComesTooLate(const v1::Job& job, const v1::Job& waiting) const;
  // Whether a waiting job could run with workers that are there, `id` among them.
  bool CouldTake(const v1::JobRecord& job, const std::string& id) const;
  // The worker has no more memory than one that was too small for the job.
  static bool TooSmall(const v1::JobRecord& record, const v1::Worker& worker);
  void CheckEnd();
  void CheckFolders(const v1::JobRecord& record);

  // told.cc: receivers, and what jobs wait for.
  void AddReceivers(core::CoreOptions& options) const;
  void AskToBeTold(v1::JobSpec& spec, const std::function<int(int, int)>& pick) const;
  // False: the job to wait for is not there yet.
  bool AskToWait(int index, v1::JobSpec& spec, const std::function<int(int, int)>& pick);
  void Deliver(const core::DeliveryRequest& request);
  void TakeTold(const std::string& receiver, const std::string& id);
  // Nothing is handed out that was answered; each receiver is told in the order of events, as far
  // as nothing is repeated.
  void CheckHandedOut(const std::string& receiver, const std::string& id);
  // An answer was committed.
  void TakeAnswer(const core::DeliveryDone& done);
  // What the event owes to whom; it is committed.
  void OweFor(const v1::JobEvent& event);
  void CheckGivenUp(const v1::JobEvent& event);
  // What is pending no more was told, or is given up by an event of the same commit.
  void CheckDropped(const v1::JobRecord& before, const v1::JobRecord& record);
  // All that is owed was told, or given up with its reason.
  void CheckOwed();
  bool NoneIsPending() const;
  // The core has seen a wall clock at or past the job's start time.
  bool TimeCame(const v1::Job& job) const;
  // The job that it waits for has succeeded since this one is there; true if it waits for none.
  bool FirstCame(const v1::Job& job) const;
  // Jobs that wait for `first`, which succeeds.
  void TakeSuccess(const std::string& first);
  // State of the job that it waits for; SUCCEEDED if for none.
  v1::JobState FirstsState(const v1::Job& job) const;
  void LookAtTheClock();
  void CheckNotEarly(const v1::JobEvent& event);
  void CheckNotLate(const v1::JobRecord& record);
  void LetTimesCome();

  // daemons.cc: agents and the gangs' data plane.
  void StartDaemon(Daemon& daemon);
  void CrashDaemon(Daemon& daemon);
  void StopDaemon(Daemon& daemon);
  void Dial(Daemon& daemon);
  void Beat(Daemon& daemon, const std::string& incarnation);
  void SayAlive(Daemon& daemon);
  void BreakLink(uint64_t id);
  void SendUp(Daemon& daemon, core::Command command);
  void SendDown(const core::OutgoingMessage& out);
  void Receive(Daemon& daemon, const v1::CoordinatorMessage& message);
  void TakeWelcome(Daemon& daemon, const v1::Welcome& welcome);
  void TakeAck(Daemon& daemon, const v1::ReportAck& ack);
  void TakeStart(Daemon& daemon, const v1::Task& task);
  void TakeKv(Daemon& daemon, const v1::TaskKvValue& value);
  void Report(Daemon& daemon, const TaskKey& key, v1::TaskReport report);
  void SendReport(Daemon& daemon, const v1::TaskReport& report);
  void AskKv(Daemon& daemon, const TaskKey& key, const std::string& name);
  void Exit(Daemon& daemon, const TaskKey& key, v1::ExitReason reason, bool report);
  // Ends slowly: it computes no more, and is gone much later.
  void Die(Daemon& daemon, const TaskKey& key);
  void PeerDied(const TaskKey& key);
  void Step(const TaskKey& key);
  void Announce(const TaskKey& key, Gang& gang);
  void LeaveAll(const TaskKey& key, v1::ExitReason reason);
  // What the agent finds under its checkpoint root.
  void ListFolders(Daemon& daemon, int64_t request_id);
  void Remove(const v1::DeleteCheckpointFolder& message);

  struct Owed {
    std::string job_id;
    std::string kind;
    bool told = false;
    bool given_up = false;
  };
  struct Event {
    absl::Duration at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::make_pair(at, order) > std::make_pair(other.at, other.order);
    }
  };

  const uint64_t seed_;
  const Mode mode_;
  std::mt19937_64 random_;
  FakeClock clock_;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  std::string failure_;
  bool done_ = false;
  absl::Duration all_since_ = absl::InfiniteDuration();  // all jobs have ended
  bool trace_ = false;
  bool healed_ = false;
  bool jumped_ = false;  // the wall clock has
  bool booted_ = false;  // the coordinator's machine has, after the first time

  Store store_;
  std::unique_ptr<Durable> durable_;          // null = `store_` is all
  std::vector<core::Effects> in_the_making_;  // whether they are on the disk nobody knows
  std::unique_ptr<core::Core> core_;          // null = crashed
  // Commands whose effects wait in commits_, each with its answer.
  struct Waiting {
    core::Command command;
    std::function<void(const core::Reply&)> answer;
  };
  std::unique_ptr<core::GroupCommit> commits_;  // of this coordinator
  std::vector<Waiting> waiting_;
  absl::Duration commit_at_;    // an event looks whether it is due
  std::set<uint64_t> leaving_;  // links on which it has heard that the worker is ending
  std::set<TaskKey> begun_;     // gangs of which a start was seen
  int64_t generation_ = 0;
  absl::Duration offset_;  // of the monotonic clock: each boot has its own origin
  std::string boot_id_;
  absl::Duration stalled_until_;
  std::deque<std::pair<core::Command, std::function<void(const core::Reply&)>>> backlog_;
  bool draining_ = false;
  double crash_chance_ = 0;
  int64_t commands_ = 0;
  int64_t epochs_ = 0;
  absl::Duration end_;
  std::map<std::string, int64_t> reasons_;
  absl::Duration aging_;                                // of the queue; 0 = priority alone decides
  std::map<std::string, absl::Duration> submit_times_;  // by the clock that does not jump
  int64_t overtakings_ = 0;
  int64_t aged_ = 0;

  std::map<std::pair<int64_t, std::string>, Owed> owed_;  // by event revision and receiver
  std::map<std::string, int64_t> given_up_;  // "job kind receiver" -> how many, in this commit
  std::set<std::string> answered_;           // ids of notifications
  // All three of this coordinator: receivers that are being told, what was handed out, and the
  // newest revision of that, by receiver.
  std::set<std::string> under_way_;
  std::set<std::string> handed_out_;
  std::map<std::string, int64_t> newest_handed_out_;
  bool tightened_ = false;                         // url_prefixes are
  std::map<int, absl::Time> start_times_;          // by job index
  std::set<int> no_after_;                         // the job to wait for had ended
  std::map<std::string, absl::Time> latest_seen_;  // wall clock since the job is there
  std::set<std::string> seen_waiting_;             // for a time or another job
  std::set<std::string> first_came_;               // the job that they wait for has succeeded
  int64_t told_ = 0;
  int64_t refused_ = 0;
  int64_t started_after_waiting_ = 0;
  int64_t extended_ = 0;
  int64_t early_ = 0;  // messages that left before the commit that is due
  int64_t unbacked_ = 0;

  std::vector<std::unique_ptr<Daemon>> daemons_;
  std::map<uint64_t, Link> links_;
  uint64_t next_link_ = 1;
  std::map<TaskKey, Gang> gangs_;
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>>
      folders_;  // job -> (epoch, step) on disk
  std::map<std::string, std::map<std::pair<int64_t, int64_t>, absl::Time>> written_;
  // Half-written ones, of writers that were killed.
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> temporaries_;
  int job_count_ = 0;
  std::map<int, std::string> submitted_;  // index -> acknowledged job id
};

}  // namespace hearth::sim
