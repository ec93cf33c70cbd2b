#include "worker/trainer/step/divided_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/model/weight_walk.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {
namespace {

using kernels::TensorView;

class DividedWeightsTest : public testing::TestWithParam<std::string> {
 protected:
  DividedWeightsTest() : job_(SmallJob(dir_.path(), GetParam())) {
    job_.mutable_model()->set_vocab(131);  // padded
    job_.mutable_model()->set_layers(5);
    job_.mutable_precision()->set_recipe("bf16");
  }
  // Its data are written once: ranks read them.
  v1::JobSpec Job(const char* shard) const {
    v1::JobSpec spec = job_;
    spec.mutable_parallel()->set_shard(shard);
    return spec;
  }

  // One rank's engine, its exchange and its source of weights.
  struct Rank {
    std::unique_ptr<TestRank> made;
    std::unique_ptr<GradientExchange> exchange;
    std::unique_ptr<DividedWeights> weights;
  };

  // Runs `body` on every rank at the same time.
  void OnRanks(int ranks, const std::function<void(int rank, Rank& made)>& body) const {
    const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        SCOPED_TRACE(testing::Message() << "rank " << r << " of " << ranks);
        Collective& comm = *comms[static_cast<size_t>(r)];
        Rank rank;
        rank.made = MakeRank(Job("weights"), comm);
        Engine& engine = *rank.made->engine;
        auto exchange = GradientExchange::New(engine, comm, Exchanged::kGradients);
        ASSERT_TRUE(exchange.ok()) << exchange.status();
        rank.exchange = *std::move(exchange);
        auto weights = DividedWeights::New(engine, comm, rank.exchange->beside(), true);
        ASSERT_TRUE(weights.ok()) << weights.status();
        rank.weights = *std::move(weights);
        body(r, rank);
        rank.weights.reset();
        rank.exchange.reset();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  TempDir dir_;
  v1::JobSpec job_;
};
INSTANTIATE_TEST_SUITE_P(Families, DividedWeightsTest, testing::Values("llama", "qwen2", "gpt2"));

bool SameBits(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Fills the slots with wrong values, so that a part that does not arrive shows.
void SpoilSlots(const Engine& engine) {
  const ParameterStore& p = engine.parameters();
  for (size_t u = 0; u < p.units().units.size(); ++u) {
    for (const ParameterStore::UnitPart& part : p.UnitParts(static_cast<int>(u))) {
      std::fill_n(part.whole.as<float>(), part.whole.numel(),
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
}

// NOLINTNEXTLINE(readability-function-size): one pass of several ranks, read from top to bottom
TEST_P(DividedWeightsTest, EveryVisit_FindsTheWholeWeightsOfItsUnit) {
  const std::unique_ptr<Collective> solo = NewSoloCollective();
  const std::unique_ptr<TestRank> whole = MakeRank(Job("off"), *solo);
  const ParameterStore& want = whole->engine->parameters();
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](int /*rank*/, Rank& made) {
      const Engine& engine = *made.made->engine;
      const ParameterStore& p = engine.parameters();
      ASSERT_TRUE(p.weights_divided());
      const spec::WeightUnits& units = p.units();
      const spec::StepTimeline time = spec::TimelineOf(engine.shape());
      WeightWalk walk(units);
      for (int pass = 0; pass < 2; ++pass) {
        SpoilSlots(engine);
        ASSERT_TRUE(walk.Begin(engine.exec(), made.weights.get(), /*backward=*/true).ok());
        // Forward through all blocks, and back from the head through those of the layers.
        for (int moment = 0; moment < time.EmbeddingBackward(); ++moment) {
          const int block = moment <= time.Head() ? moment : 2 * time.Head() - moment;
          ASSERT_TRUE(walk.Enter(engine.exec(), block).ok());
          for (int i = 0; i < p.size(); ++i) {
            const int of = p.table()[static_cast<size_t>(i)].block;
            if (units.of_block[static_cast<size_t>(of)] ==
                units.of_block[static_cast<size_t>(block)]) {
              EXPECT_TRUE(SameBits(p.weight(i), want.weight(i)))
                  << p.table()[static_cast<size_t>(i)].name << " at moment " << moment;
            }
          }
        }
        ASSERT_TRUE(walk.End(engine.exec()).ok());
      }
    });
  }
}

TEST_P(DividedWeightsTest, VisitUnits_GivesRankZeroAllWeights) {
  const std::unique_ptr<Collective> solo = NewSoloCollective();
  const std::unique_ptr<TestRank> whole = MakeRank(Job("off"), *solo);
  OnRanks(3, [&](int rank, Rank& made) {
    const Engine& engine = *made.made->engine;
    ASSERT_TRUE(
        VisitUnits(engine.exec(), *made.weights, engine.parameters().units(), [&](int unit) {
          return engine.TakeWhole(unit);
        }).ok());
    for (int i = 0; rank == 0 && i < engine.parameters().size(); ++i) {
      EXPECT_TRUE(SameBits(engine.whole_weight(i), whole->engine->parameters().weight(i))) << i;
    }
  });
  EXPECT_EQ(whole->engine->whole_weight(1).data, whole->engine->parameters().weight(1).data)
      << "whole weights are where they are";
}

TEST_P(DividedWeightsTest, PartsAndSlots_TakeWhatThePlanSays_AndNoMore) {
  OnRanks(2, [](int /*rank*/, Rank& made) {
    const Engine& engine = *made.made->engine;
    const ParameterStore& p = engine.parameters();
    const spec::WeightUnits& units = p.units();
    auto bytes = static_cast<int64_t>(p.flat_weights().bytes());
    int64_t parts = 0;
    int64_t elements = 0;
    std::vector<size_t> slots(units.slots.size(), 0);
    for (size_t u = 0; u < units.units.size(); ++u) {
      size_t unit = 0;
      for (const ParameterStore::UnitPart& part : p.UnitParts(static_cast<int>(u))) {
        unit += part.whole.bytes();
        parts += static_cast<int64_t>(part.own.bytes());
        elements += part.whole.numel();
      }
      size_t& slot = slots[static_cast<size_t>(units.units[u].slot)];
      slot = std::max(slot, unit);
    }
    EXPECT_EQ(parts, bytes) << "a rank keeps its part of every bucket";
    EXPECT_EQ(elements, 2 * p.flat_weights().numel());
    for (const size_t slot : slots) {
      bytes += static_cast<int64_t>(slot);
    }
    EXPECT_EQ(bytes, engine.plan().ClassBytes(spec::BufferClass::kParameters));
    // Forward gathers everything, backward the layers but the last two: five here.
    const int64_t layer = units.units[1].elements;
    EXPECT_EQ(made.weights->BytesPerPass(), 4 * (elements + 3 * layer) / 2);
  });
}

TEST_P(DividedWeightsTest, APassWithoutASource_IsRefused) {
  OnRanks(2, [](int /*rank*/, Rank& made) {
    Engine& engine = *made.made->engine;
    LossSums sums;
    EXPECT_EQ(engine.model().ForwardLoss(engine.exec(), sums).code(),
              absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace hearth::trainer
