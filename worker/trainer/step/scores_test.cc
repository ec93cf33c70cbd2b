#include "worker/trainer/step/scores.h"

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/data/loader.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kLength = 16;

std::unique_ptr<Engine> Make(v1::JobSpec spec, int64_t micro_batch, bool documents) {
  spec.mutable_data()->set_attention(documents ? "document" : "causal");
  EngineOptions options;
  options.spec = std::move(spec);
  options.micro_batch = micro_batch;
  options.training = false;
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_TRUE((*engine)->Initialise().ok());
  return *std::move(engine);
}

// Requests of 2 to T + 1 tokens, 1 to all but one of them scored.
std::vector<ScoreRequest> Requests(int count) {
  std::vector<ScoreRequest> requests(static_cast<size_t>(count));
  uint32_t state = 5;
  const auto draw = [&state](int64_t below) {
    state = state * 1664525U + 1013904223U;
    return static_cast<int64_t>(state >> 8) % below;
  };
  for (ScoreRequest& request : requests) {
    request.tokens.resize(static_cast<size_t>(2 + draw(kLength)));
    for (int32_t& token : request.tokens) {
      token = static_cast<int32_t>(draw(37));
    }
    request.scored = 1 + draw(static_cast<int64_t>(request.tokens.size()) - 1);
  }
  requests[0].tokens.resize(kLength + 1, 3);
  return requests;
}

std::vector<Score> ScoreAll(Engine& engine, const std::vector<ScoreRequest>& requests) {
  const auto batches = ScoreBatches::Place(engine, requests);
  EXPECT_TRUE(batches.ok()) << batches.status().ToString();
  std::vector<Score> scores(requests.size());
  for (int64_t i = 0; i < batches->size(); ++i) {
    EXPECT_TRUE(batches->Run(engine, Pass{}, i, absl::MakeSpan(scores)).ok());
  }
  return scores;
}

class ScoresTest : public testing::Test {
 protected:
  TempDir dir_;
};

// The loss that training computes of the same tokens, alone in a sample.
TEST_F(ScoresTest, LogLikelihood_IsTheLossOfTheForwardPass) {
  for (const char* family : {"llama", "gpt2"}) {
    const v1::JobSpec spec = SmallJob(dir_.path(), family);
    const std::vector<ScoreRequest> requests = Requests(40);
    const auto packed = Make(spec, 3, true);
    const std::vector<Score> scores = ScoreAll(*packed, requests);
    const auto plain = Make(spec, 1, false);
    const BatchBuffers batch = plain->model().batch();
    for (size_t r = 0; r < requests.size(); ++r) {
      const ScoreRequest& request = requests[r];
      const int64_t inputs = static_cast<int64_t>(request.tokens.size()) - 1;
      for (int64_t i = 0; i < kLength; ++i) {
        const bool inside = i < inputs;
        batch.tokens[i] = inside ? request.tokens[static_cast<size_t>(i)] : 9;
        batch.targets[i] = inside ? request.tokens[static_cast<size_t>(i) + 1] : 9;
        batch.loss_weight[i] = inside && i >= inputs - request.scored ? 1.0F : 0.0F;
        batch.position[i] = static_cast<int32_t>(i);
        batch.start[i] = 0;
      }
      LossSums sums;
      ASSERT_TRUE(plain->model().ForwardLoss(plain->exec(), sums).ok());
      EXPECT_EQ(sums.weight, static_cast<double>(request.scored));
      EXPECT_NEAR(scores[r].log_likelihood, -sums.loss, 1e-5 * (1 + sums.loss)) << family << r;
    }
  }
}

TEST_F(ScoresTest, BatchAndPacking_DoNotChangeScores) {
  const v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
  const std::vector<ScoreRequest> requests = Requests(60);
  const std::vector<Score> one = ScoreAll(*Make(spec, 1, false), requests);
  for (const int64_t micro_batch : {2, 5, 64}) {
    for (const bool documents : {false, true}) {
      const std::vector<Score> other = ScoreAll(*Make(spec, micro_batch, documents), requests);
      for (size_t r = 0; r < requests.size(); ++r) {
        EXPECT_NEAR(other[r].log_likelihood, one[r].log_likelihood, 1e-5) << r;
        EXPECT_EQ(other[r].greedy, one[r].greedy) << r;
      }
    }
  }
}

TEST_F(ScoresTest, Packing_FillsSamples) {
  const v1::JobSpec spec = SmallJob(dir_.path());
  const std::vector<ScoreRequest> requests = Requests(200);
  int64_t tokens = 0;
  for (const ScoreRequest& request : requests) {
    tokens += static_cast<int64_t>(request.tokens.size()) - 1;
  }
  const auto packed = ScoreBatches::Place(*Make(spec, 4, true), requests);
  EXPECT_LE(packed->samples(), tokens / kLength + tokens / kLength / 10 + 1);
  EXPECT_EQ(ScoreBatches::Place(*Make(spec, 4, false), requests)->samples(), 200);
}

TEST_F(ScoresTest, Greedy_IsWhatTheLargestLogitSays) {
  const v1::JobSpec spec = SmallJob(dir_.path());
  const auto engine = Make(spec, 1, false);
  std::vector<float> logits(37);
  std::vector<ScoreRequest> requests(1);
  requests[0].tokens = {1, 4, 7, 0};
  ASSERT_EQ(ScoreAll(*engine, requests).size(), 1U);
  ASSERT_TRUE(
      engine->model().ForwardLogits(engine->exec(), 2, kernels::View(logits.data(), {1, 37})).ok());
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (int32_t token = 0; token < 37; ++token) {
    requests[0].tokens[3] = token;
    EXPECT_EQ(ScoreAll(*engine, requests)[0].greedy, token == best) << token;
  }
}

TEST_F(ScoresTest, BadRequests_AreRefused) {
  const auto engine = Make(SmallJob(dir_.path()), 1, false);
  const auto refused = [&](const ScoreRequest& request) {
    return absl::IsInvalidArgument(ScoreBatches::Place(*engine, {request}).status());
  };
  EXPECT_TRUE(refused({{1}, 1}));
  EXPECT_TRUE(refused({std::vector<int32_t>(kLength + 2, 1), 1}));
  EXPECT_TRUE(refused({{1, 2, 3}, 0}));
  EXPECT_TRUE(refused({{1, 2, 3}, 3}));
  EXPECT_TRUE(refused({{1, 37}, 1}));
  EXPECT_TRUE(refused({{1, -1}, 1}));
  EXPECT_FALSE(refused({{1, 36, 0}, 2}));
}

// Ranks share the micro-batches of a job with evaluations; all get all scores. With divided weights
// those without one in the last round still hand their weights round.
TEST_F(ScoresTest, TrainersOfSeveralRanks_GetTheScoresOfOne) {
  v1::JobSpec spec = SmallJob(dir_.path());
  spec.mutable_train()->add_evaluations()->set_task("piqa");
  const std::vector<ScoreRequest> requests = Requests(30);
  std::vector<std::vector<Score>> of;
  for (const auto& [ranks, shard] :
       {std::pair(1, "off"), std::pair(2, "off"), std::pair(3, "weights")}) {
    const int world = ranks;
    spec.mutable_parallel()->set_shard(shard);
    std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(world);
    std::vector<std::vector<Score>> scores(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int r = 0; r < world; ++r) {
      threads.emplace_back([&, r] {
        const auto rank = MakeRank(spec, *comms[static_cast<size_t>(r)]);
        ASSERT_TRUE(rank->trainer->Step({}).ok());
        auto scored = rank->trainer->ScoreAll(requests);
        ASSERT_TRUE(scored.ok()) << scored.status().ToString();
        scores[static_cast<size_t>(r)] = *std::move(scored);
        std::vector<ScoreRequest> others = requests;
        others[3].tokens[0] = r;
        EXPECT_EQ(rank->trainer->ScoreAll(others).ok(), world == 1) << "ranks ask different items";
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    of.insert(of.end(), scores.begin(), scores.end());
  }
  ASSERT_EQ(of.size(), 6U);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(of[1][i].log_likelihood, of[2][i].log_likelihood);
    EXPECT_EQ(of[3][i].log_likelihood, of[4][i].log_likelihood);
    EXPECT_EQ(of[3][i].log_likelihood, of[5][i].log_likelihood);
    for (size_t rank = 1; rank < of.size(); ++rank) {
      EXPECT_NEAR(of[0][i].log_likelihood, of[rank][i].log_likelihood, 1e-4);
      EXPECT_EQ(of[0][i].greedy, of[rank][i].greedy);
    }
  }
}

}  // namespace
}  // namespace hearth::trainer
