// The ranks of a job as threads, for tests of whole runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/trainer/test_link.h"

namespace hearth::trainer {

struct Gang {
  std::vector<std::unique_ptr<FakeLink>> links;
  std::vector<v1::TrainerExit> exits;
};

// Runs the job on so many ranks, from a checkpoint if one is given.
inline Gang RunGang(KeyValueStore& store,
                    const v1::JobSpec& spec,
                    int ranks,
                    const std::string& folder,
                    int64_t epoch,
                    const v1::CheckpointAnnouncement* from) {
  Gang gang;
  gang.exits.resize(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    v1::Task task = MakeTask(spec, folder, rank, ranks);
    if (from != nullptr) {
      ResumeFrom(*from, task);
    }
    task.set_epoch(epoch);
    gang.links.push_back(std::make_unique<FakeLink>(task, store));
  }
  for (size_t rank = 0; rank < gang.links.size(); ++rank) {
    threads.emplace_back([&gang, rank] { gang.exits[rank] = RunTo(*gang.links[rank]); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return gang;
}

}  // namespace hearth::trainer
