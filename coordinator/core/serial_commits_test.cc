// How many commits of a slow disk a restart waits for, one after the other. The event loop is
// played here, on a virtual clock: while it commits, what arrives waits.
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/core.h"
#include "coordinator/core/group_commit.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kLatency = absl::Milliseconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr int kRanks = 2;

enum class Policy {
  kTable,         // as the event loop does it
  kCommitsFirst,  // each batch is committed before anything of it leaves
};

// A coordinator whose commits take `commit`, two workers, and a job that trains on both.
class SlowDisk {
 public:
  SlowDisk(Policy policy, absl::Duration commit) : policy_(policy), commit_(commit) {
    for (int i = 0; i < kRanks; ++i) {
      AgentConnected connected;
      connected.connection_id = Connection(i);
      v1::Hello& hello = connected.hello;
      hello.set_worker_id(absl::StrCat("w", i));
      hello.set_incarnation("i");
      hello.mutable_device()->set_kind("cpu");
      hello.set_checkpoint_root("/ck");
      hello.set_root_uuid("root");
      Post(connected);
      Beat(i);
    }
    CreateJob create;
    create.job_id = "job";
    create.paths_checked = true;
    create.spec.set_name("job");
    create.spec.mutable_train()->set_steps(1'000'000);
    create.spec.mutable_checkpoint()->set_grace_seconds(20);
    create.spec.mutable_resources()->set_workers(kRanks);
    create.spec.mutable_resources()->set_device("cpu");
    create.spec.mutable_resources()->set_max_restarts(2);
    Post(create);
    LookLater();
  }

  // Until readers see the job in that state.
  void AwaitState(v1::JobState state) {
    while (seen_ != state) {
      Next();
      ASSERT_LT(now_, absl::Minutes(5)) << "the job does not get there";
    }
  }
  void Pass(absl::Duration by) {
    for (const absl::Duration end = now_ + by; now_ < end;) {
      Next();
    }
  }

  void KillTrainer(int rank) { EndTrainer(rank, v1::EXIT_REASON_KILLED); }
  void Cancel() {
    v1::CancelJobRequest cancel;
    cancel.set_job_id("job");
    Post(cancel);
  }
  void Resume() {
    ResumeJob resume;
    resume.job_id = "job";
    Post(resume);
  }

  int commits() const { return commits_; }
  int64_t epoch() const { return core_.FindJob("job")->job().epoch(); }
  // Steps of this epoch that the trainers have made, whoever knows of them.
  int64_t trained() const { return trained_; }

 private:
  struct Event {
    absl::Duration at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::make_pair(at, order) > std::make_pair(other.at, other.order);
    }
  };
  struct Trainer {
    int64_t epoch = 0;
    bool lives = false;
    int64_t seq = 0;
    std::set<std::string> keys;
  };

  static uint64_t Connection(int rank) { return static_cast<uint64_t>(rank) + 1; }
  static Now At(absl::Duration now) { return {absl::FromUnixSeconds(1700000000) + now, now}; }

  void After(absl::Duration delay, std::function<void()> what) {
    events_.push({now_ + delay, order_++, std::move(what)});
  }
  void Next() {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.at);
    event.what();
  }

  // The loop's thread: it takes what has arrived, unless a commit is under way.
  void Post(const Command& command) {
    After(kLatency, [this, command] {
      inbox_.push_back(command);
      Turn();
    });
  }
  void LookLater() {
    After(kLook, [this] {
      LookLater();
      Turn();
    });
  }
  void Turn() {
    if (busy_) {
      return;  // it looks again after the commit
    }
    std::vector<Effects> effects;
    for (; !inbox_.empty(); inbox_.pop_front()) {
      effects.push_back(core_.Apply(inbox_.front(), At(now_)));
    }
    if (core_.NextDeadline() <= now_) {
      effects.push_back(core_.Apply(Tick{}, At(now_)));
    }
    for (Effects& e : effects) {
      if (policy_ == Policy::kTable) {
        Send(waiting_.Add(std::move(e), now_));
      } else {
        stored_ = stored_ || !e.NothingDurable();
        all_.push_back(std::move(e));
      }
    }
    if (policy_ == Policy::kCommitsFirst) {
      Commit(std::exchange(all_, {}), std::exchange(stored_, false));
    } else if (waiting_.DueAt() <= now_) {
      const bool stored = waiting_.AnyStored();
      Commit(waiting_.Take(), stored);
    }
  }
  void Commit(std::vector<Effects> effects, bool stored) {
    if (!stored) {
      LetKnow(effects);
      return;
    }
    busy_ = true;
    After(commit_, [this, effects = std::move(effects)] {
      busy_ = false;
      ++commits_;
      waiting_.Committed(commit_);
      LetKnow(effects);
      Turn();
    });
  }
  void LetKnow(const std::vector<Effects>& effects) {
    for (const Effects& e : effects) {
      for (const v1::JobEvent& event : e.events) {
        seen_ = event.type() == "state" ? event.to_state() : seen_;
      }
      Send(e.messages);
    }
  }
  void Send(const std::vector<OutgoingMessage>& messages) {
    for (const OutgoingMessage& message : messages) {
      After(kLatency, [this, message] {
        Receive(static_cast<int>(message.connection_id) - 1, message.message);
      });
    }
  }

  // A worker and its trainer.
  void Beat(int rank) {
    AgentHeartbeat beat;
    beat.connection_id = Connection(rank);
    Post(beat);
    After(absl::Seconds(1), [this, rank] { Beat(rank); });
  }
  void Receive(int rank, const v1::CoordinatorMessage& message) {
    if (message.has_start()) {
      After(absl::Milliseconds(100),
            [this, rank, epoch = message.start().task().epoch()] { StartTrainer(rank, epoch); });
    } else if (message.has_kv_value()) {
      TakeKey(rank, message.kv_value());
    } else if (message.has_kill()) {
      After(absl::Milliseconds(20), [this, rank] { EndTrainer(rank, v1::EXIT_REASON_KILLED); });
    } else if (message.has_control()) {
      After(absl::Milliseconds(20), [this, rank] { Leave(rank); });
    }
  }
  void Report(int rank, v1::TaskReport report) {
    report.set_job_id("job");
    report.set_epoch(trainers_[rank].epoch);
    report.set_rank(rank);
    report.set_seq(++trainers_[rank].seq);
    Post(AgentReport{Connection(rank), std::move(report)});
  }
  void Log(int rank) {
    v1::TaskReport logs;
    logs.mutable_logs()->add_lines()->set_text("x");
    Report(rank, std::move(logs));
  }
  // As the trainers do it: the ranks come to the rendezvous one after another, each says two things
  // (its address, and what it can do) and waits for those of the other.
  void StartTrainer(int rank, int64_t epoch) {
    trained_ = 0;
    trainers_[rank] = {epoch, true, 0, {}};
    Log(rank);
    Tell(rank, "address");
  }
  void Tell(int rank, const std::string& what) {
    v1::TaskReport put;
    put.mutable_kv_put()->set_key(absl::StrCat(what, rank));
    put.mutable_kv_put()->set_value("v");
    Report(rank, std::move(put));
    v1::TaskKvWait wait;
    wait.set_job_id("job");
    wait.set_epoch(trainers_[rank].epoch);
    wait.set_rank(rank);
    wait.set_key(absl::StrCat(what, 1 - rank));
    Post(AgentKvWait{Connection(rank), wait});
  }
  void TakeKey(int rank, const v1::TaskKvValue& value) {
    Trainer& trainer = trainers_[rank];
    if (!trainer.lives || !trainer.keys.insert(value.value().key()).second) {
      return;
    }
    if (value.value().key() == absl::StrCat("address", 1 - rank)) {
      Tell(rank, "format");
      return;
    }
    Log(rank);
    if (rank == 0) {
      v1::TaskReport info;
      info.mutable_run_info();
      Report(0, std::move(info));
      After(absl::Milliseconds(100), [this, epoch = trainer.epoch] { Step(epoch); });
    }
  }
  void Step(int64_t epoch) {
    for (const auto& [rank, trainer] : trainers_) {
      if (!trainer.lives || trainer.epoch != epoch) {
        return;
      }
    }
    v1::TaskReport step;
    step.mutable_step()->set_step(resumed_ + ++trained_);
    Report(0, std::move(step));
    Log(1);
    After(absl::Milliseconds(100), [this, epoch] { Step(epoch); });
  }
  // It writes a checkpoint and goes.
  void Leave(int rank) {
    if (rank == 0 && trained_ > 0) {
      v1::TaskReport saved;
      resumed_ += std::exchange(trained_, 0);
      saved.mutable_checkpoint()->set_step(resumed_);
      saved.mutable_checkpoint()->set_path(
          absl::StrCat("/ck/job/e", trainers_[rank].epoch, "/step-", resumed_));
      Report(rank, std::move(saved));
    }
    EndTrainer(rank, v1::EXIT_REASON_STOPPED);
  }
  void EndTrainer(int rank, v1::ExitReason reason) {
    if (!std::exchange(trainers_[rank].lives, false)) {
      return;
    }
    Log(rank);
    v1::TaskReport exit;
    exit.mutable_exit()->mutable_exit()->set_reason(reason);
    exit.mutable_exit()->set_clean(true);
    Report(rank, std::move(exit));
  }

  const Policy policy_;
  const absl::Duration commit_;
  absl::Duration now_ = absl::Seconds(1);
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  Core core_{CoreOptions(), RestoredState(), At(now_)};
  GroupCommit waiting_{512};
  std::vector<Effects> all_;  // with Policy::kCommitsFirst
  bool stored_ = false;
  std::deque<Command> inbox_;
  bool busy_ = false;
  int commits_ = 0;
  v1::JobState seen_ = v1::JOB_STATE_UNSPECIFIED;
  std::map<int, Trainer> trainers_;
  int64_t trained_ = 0;
  int64_t resumed_ = 0;
};

constexpr absl::Duration kBefore = absl::Milliseconds(3300);

// A trainer is killed `before` long after the job ran; until readers see that it runs again.
int CommitsOfARestart(Policy policy, absl::Duration before = kBefore) {
  SlowDisk disk(policy, absl::Milliseconds(500));
  disk.AwaitState(v1::JOB_STATE_RUNNING);
  disk.Pass(before);
  const int commits = disk.commits();
  disk.KillTrainer(0);
  disk.AwaitState(v1::JOB_STATE_RECOVERING);
  disk.AwaitState(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(disk.epoch(), 2);
  return disk.commits() - commits;
}

int CommitsOfACancelAndResume(Policy policy) {
  SlowDisk disk(policy, absl::Milliseconds(500));
  disk.AwaitState(v1::JOB_STATE_RUNNING);
  disk.Pass(kBefore);
  const int commits = disk.commits();
  disk.Cancel();
  disk.AwaitState(v1::JOB_STATE_CANCELLED);
  disk.Resume();
  disk.AwaitState(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(disk.epoch(), 2);
  return disk.commits() - commits;
}

TEST(SerialCommits, ARestart_WaitsForThree) {
  // RECOVERING with the kill; STARTING with the start; RUNNING.
  EXPECT_EQ(CommitsOfARestart(Policy::kTable), 3);
  EXPECT_GE(CommitsOfARestart(Policy::kCommitsFirst), 8);
}

TEST(SerialCommits, ARestartAtAnyMoment_WaitsForOneMoreAtMost) {
  for (int i = 0; i < 40; ++i) {
    // A commit of what waited may be under way.
    const int commits = CommitsOfARestart(Policy::kTable, absl::Milliseconds(3000 + 77 * i));
    EXPECT_GE(commits, 3) << i;
    EXPECT_LE(commits, 4) << i;
  }
}

TEST(SerialCommits, CancelAndResume_WaitForFour) {
  // CANCELLING with the stop; CANCELLED; STARTING with the start and the answer; RUNNING.
  EXPECT_EQ(CommitsOfACancelAndResume(Policy::kTable), 4);
  EXPECT_GE(CommitsOfACancelAndResume(Policy::kCommitsFirst), 10);
}

}  // namespace
}  // namespace hearth::coordinator
