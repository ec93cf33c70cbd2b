// A rank's link that keeps what it is told, for tests of a rank's life.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "worker/trainer/comm/rendezvous/key_value_store.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {

// Records what a rank says; asks for a control bit after a given step.
//
// Each checkpoint that is due is also asked for, so that it waits for the one before instead of
// being skipped. AskForDue(false) leaves that to the trainer.
class FakeLink : public Link {
 public:
  FakeLink(v1::Task task, KeyValueStore& store) : task_(std::move(task)), store_(store) {}

  void AskForDue(bool ask) { ask_for_due_ = ask; }
  void AskAt(int64_t step, v1::ControlBit bit) { asks_[step] = uint64_t{1} << bit; }

  const v1::Task& task() const override { return task_; }
  uint64_t TakeControl() override {
    const auto ask = asks_.find(static_cast<int64_t>(++calls_));
    const int64_t every = task_.spec().checkpoint().every_steps();
    const int64_t next = (steps.empty() ? run_info.start_step() : steps.back().step()) + 1;
    const bool due = ask_for_due_ && every > 0 && next % every == 0;
    return (ask == asks_.end() ? 0 : ask->second) |
           (due ? uint64_t{1} << v1::CONTROL_BIT_SAVE : uint64_t{0});
  }
  void SendRunInfo(const v1::RunInfo& info) override { run_info = info; }
  void SendTrial(const v1::PrecisionTrial& trial) override {
    trials.push_back(trial);
    if (on_trial) {
      on_trial(trial);
    }
  }
  void SendStep(const v1::StepReport& report) override { steps.push_back(report); }
  void SendCheckpoint(const v1::CheckpointAnnouncement& checkpoint) override {
    checkpoints.push_back(checkpoint);
  }
  void SendProgress(int64_t step, double) override { progress.push_back(step); }
  void SendPhase(std::string_view phase) override { phases.emplace_back(phase); }
  void SendLog(std::string_view level, std::string_view text) override {
    logs.push_back(std::string(level) + ": " + std::string(text));
  }
  void SendExit(const v1::TrainerExit& exit) override { exits.push_back(exit); }
  absl::Status Put(std::string_view key, std::string_view value) override {
    return store_.Put(key, value);
  }
  absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) override {
    return store_.Wait(key, timeout);
  }

  v1::RunInfo run_info;
  std::vector<v1::PrecisionTrial> trials;
  std::function<void(const v1::PrecisionTrial&)> on_trial;  // on the trainer's thread; may be empty
  std::vector<v1::StepReport> steps;
  std::vector<v1::CheckpointAnnouncement> checkpoints;
  std::vector<int64_t> progress;
  std::vector<std::string> phases;
  std::vector<std::string> logs;
  std::vector<v1::TrainerExit> exits;

 private:
  v1::Task task_;
  KeyValueStore& store_;
  std::map<int64_t, uint64_t> asks_;
  int64_t calls_ = 0;
  bool ask_for_due_ = true;
};

inline v1::Task MakeTask(const v1::JobSpec& spec,
                         const std::string& checkpoint_dir,
                         int rank = 0,
                         int world_size = 1) {
  v1::Task task;
  task.set_job_id("small");
  task.set_epoch(1);
  task.set_rank(rank);
  task.set_world_size(world_size);
  *task.mutable_spec() = spec;
  task.set_checkpoint_dir(checkpoint_dir);
  task.set_device("cpu");
  task.set_threads(1);
  return task;
}

// The task of the next epoch then, which goes on from the checkpoint.
inline void ResumeFrom(const v1::CheckpointAnnouncement& checkpoint, v1::Task& task) {
  task.set_epoch(task.epoch() + 1);
  task.set_resume_path(checkpoint.path());
  task.set_resume_step(checkpoint.step());
  task.set_resume_manifest_sha256(checkpoint.manifest_sha256());
}

inline v1::TrainerExit RunTo(FakeLink& link) {
  RankOptions options;
  options.link = &link;
  return RunRank(options);
}

// Two ranks of one gang, the follower on a thread of its own. Returns how the leader and the
// follower ended.
inline std::pair<v1::TrainerExit, v1::TrainerExit> RunBoth(FakeLink& leader, FakeLink& follower) {
  v1::TrainerExit follower_exit;
  std::thread other([&] { follower_exit = RunTo(follower); });
  v1::TrainerExit exit = RunTo(leader);
  other.join();
  return {std::move(exit), std::move(follower_exit)};
}

}  // namespace hearth::trainer
