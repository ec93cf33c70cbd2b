// A TrainerHost that runs nothing and remembers what it was told.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

class FakeTrainerHost : public TrainerHost {
 public:
  void Start(v1::Task task) override {
    calls.push_back(absl::StrCat("start ", task.job_id(), " ", task.epoch()));
    tasks.push_back(std::move(task));
  }
  void Send(const TaskKey& key, v1::ToTrainer message) override {
    calls.push_back(absl::StrCat("send ", key.ToString(), " ", message.ShortDebugString()));
  }
  void Kill(const TaskKey& key, absl::Duration grace) override {
    calls.push_back(absl::StrCat("kill ", key.ToString(), " ", absl::FormatDuration(grace)));
  }
  std::vector<std::string> TakeCalls() { return std::exchange(calls, {}); }

  std::vector<std::string> calls;
  std::vector<v1::Task> tasks;
};

}  // namespace hearth::worker
