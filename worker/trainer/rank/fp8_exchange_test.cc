// Whole runs whose ranks exchange gradients in FP8.
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "tests/support/trainer/test_shards.h"

namespace hearth::trainer {
namespace {

class Fp8ExchangeRunTest : public testing::TestWithParam<std::string> {
 protected:
  v1::JobSpec Job() {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_train()->set_steps(12);
    spec.mutable_checkpoint()->set_every_steps(3);
    spec.mutable_parallel()->set_shard(GetParam());
    spec.mutable_gradients()->set_reduce_dtype("fp8");
    return spec;
  }

  // Rank 0's link after a run of `ranks`, from a checkpoint if one is given.
  std::unique_ptr<FakeLink> Run(const v1::JobSpec& spec,
                                int ranks,
                                const std::string& folder,
                                const v1::CheckpointAnnouncement* from) {
    LocalKeyValueStore store;
    std::vector<std::unique_ptr<FakeLink>> links;
    for (int rank = 0; rank < ranks; ++rank) {
      v1::Task task = MakeTask(spec, dir_.path() + "/" + folder, rank, ranks);
      if (from != nullptr) {
        ResumeFrom(*from, task);
        task.set_epoch(2);
      }
      links.push_back(std::make_unique<FakeLink>(task, store));
    }
    std::vector<std::thread> threads;
    for (const std::unique_ptr<FakeLink>& link : links) {
      threads.emplace_back([&link] {
        const v1::TrainerExit exit = RunTo(*link);
        EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return std::move(links[0]);
  }

  static std::string Weights(const FakeLink& link) {
    return *Env::Real().ReadFile(link.checkpoints.back().path() + "/model.safetensors");
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Levels, Fp8ExchangeRunTest, testing::ValuesIn(AllShards()));

// What travels leaves nothing behind: a run goes on exactly, and with other ranks nearly so.
TEST_P(Fp8ExchangeRunTest, ThreeRanksResumed_EqualNeverStopped) {
  const v1::JobSpec spec = Job();
  const auto whole = Run(spec, 3, "whole", nullptr);
  ASSERT_EQ(whole->steps.size(), 12U);
  EXPECT_LT(whole->steps[11].loss(), whole->steps[0].loss());
  for (const int ranks : {3, 4, 1}) {
    SCOPED_TRACE(ranks);
    const auto resumed = Run(spec, ranks, "r" + std::to_string(ranks), &whole->checkpoints[1]);
    ASSERT_EQ(resumed->steps.size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(resumed->steps[i].loss() / whole->steps[i + 6].loss(), 1.0,
                  ranks == 3 ? 0 : 1e-2);
    }
    EXPECT_EQ(Weights(*resumed) == Weights(*whole), ranks == 3);
  }
}

}  // namespace
}  // namespace hearth::trainer
