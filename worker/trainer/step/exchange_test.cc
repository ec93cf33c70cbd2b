// Divided gradients: slots that buckets use in turn, and the sums that each rank keeps.
#include "worker/trainer/step/exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

// What backward of a rank makes of one element in one micro-batch: a whole number, so that sums are
// exact in any order.
float GradientAt(int rank, int micro_batch, int parameter, int64_t element) {
  const int64_t value = parameter + 5 * element + 11 * rank + 13 * micro_batch;
  return static_cast<float>(value % 29 - 14);
}

class ExchangeTest : public testing::TestWithParam<std::string> {
 protected:
  v1::JobSpec Job() const {
    v1::JobSpec spec = SmallJob(dir_.path(), GetParam());
    spec.mutable_model()->set_vocab(131);  // padded: nobody writes the last rows
    spec.mutable_parallel()->set_shard("gradients");
    return spec;
  }
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Families, ExchangeTest, testing::Values("llama", "qwen2", "gpt2"));

// What the model does in backward, with made-up gradients: at each moment it writes all elements
// that it has, after it was told that it may. The head's part of a tied embedding is written first.
void Backward(const Engine& engine, GradientExchange& exchange, int rank, int micro_batch) {
  const ParameterStore& p = engine.parameters();
  const spec::StepTimeline time = spec::TimelineOf(engine.shape());
  for (int32_t moment = time.Head(); moment < time.Update(); ++moment) {
    ASSERT_TRUE(exchange.BeforeBackward(engine.exec(), moment).ok());
    for (int i = 0; i < p.size(); ++i) {
      const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
      const bool head = parameter.roles.head && moment == time.Head();
      if (!head && time.Backward(parameter.block) != moment) {
        continue;
      }
      float* const gradient = p.gradient(i).as<float>();
      for (int64_t e = 0; e < parameter.logical_elements(); ++e) {
        gradient[e] = GradientAt(rank, micro_batch, i, e);
      }
    }
    ASSERT_TRUE(exchange.AfterBackward(engine.exec(), moment).ok());
  }
}

// Slots hold NaN: whatever of them nobody writes must not reach a sum.
void SpoilSlots(const Engine& engine) {
  const ParameterStore& p = engine.parameters();
  for (const spec::GradientBucket& bucket : engine.gradient_buckets()) {
    const kernels::TensorView slot = p.GradientRange(bucket.begin, bucket.elements());
    std::fill_n(slot.as<float>(), slot.numel(), std::numeric_limits<float>::quiet_NaN());
  }
}

void ExpectSums(const Engine& engine, int ranks, const std::vector<int>& micro_batches) {
  const ParameterStore& p = engine.parameters();
  for (const StorePiece& piece : p.pieces()) {
    const int i = piece.place.parameter;
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    for (int64_t k = 0; k < piece.place.elements; ++k) {
      const int64_t element = piece.place.first_element + k;
      float sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        // Ranks above 0 sit out the first round.
        for (size_t m = rank == 0 ? 0 : 1; m < micro_batches.size(); ++m) {
          sum += GradientAt(rank, micro_batches[m], i, element);
        }
      }
      const bool padding = element >= parameter.logical_elements();
      ASSERT_EQ(piece.gradient.as<float>()[k], padding ? 0 : sum)
          << parameter.name << "[" << element << "]";
    }
  }
  for (const kernels::TensorView& owned : p.owned_gradients()) {
    for (int64_t e = 0; e < owned.numel(); ++e) {
      ASSERT_TRUE(std::isfinite(owned.as<float>()[e])) << "what lies between tensors";
    }
  }
}

TEST_P(ExchangeTest, DividedGradients_EachRankKeepsTheSumsOfItsPart) {
  const v1::JobSpec spec = Job();
  for (const int ranks : {2, 3}) {
    const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank, ranks] {
        SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks);
        Collective& comm = *comms[static_cast<size_t>(rank)];
        const std::unique_ptr<TestRank> made = MakeRank(spec, comm);
        const Engine& engine = *made->engine;
        const auto exchange = GradientExchange::New(*made->engine, comm, Exchanged::kGradients);
        ASSERT_TRUE(exchange.ok()) << exchange.status();
        // Two steps of three rounds: the second begins its sums again.
        for (const std::vector<int>& micro_batches : {std::vector{0, 1, 2}, std::vector{3, 4, 5}}) {
          for (int round = 0; round < 3; ++round) {
            SpoilSlots(engine);
            ASSERT_TRUE((*exchange)
                            ->BeginPass(engine.exec(), {.first = round == 0, .last = round == 2})
                            .ok());
            if (round == 0 && rank > 0) {
              ASSERT_TRUE((*exchange)->RunIdle(engine.exec()).ok());
            } else {
              Backward(engine, **exchange, rank, micro_batches[static_cast<size_t>(round)]);
            }
            ASSERT_TRUE((*exchange)->FinishPass(engine.exec()).ok());
          }
          ExpectSums(engine, ranks, micro_batches);
        }
        EXPECT_EQ((*exchange)->bytes_per_step(3) - (*exchange)->bytes_per_step(2),
                  int64_t{4} * engine.parameters().flat_weights().numel() / ranks * (ranks - 1));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

TEST_P(ExchangeTest, DividedGradients_TakeWhatThePlanSays_AndNoMore) {
  const v1::JobSpec spec = Job();
  const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(2);
  for (int rank = 0; rank < 2; ++rank) {
    const std::unique_ptr<TestRank> made = MakeRank(spec, *comms[static_cast<size_t>(rank)]);
    const ParameterStore& p = made->engine->parameters();
    ASSERT_TRUE(p.gradients_divided());
    EXPECT_TRUE(p.flat_gradients().empty());
    // Bytes between the first and the last that a view of the buffers shows.
    int64_t bytes = 0;
    for (const kernels::TensorView& owned : p.owned_gradients()) {
      bytes += static_cast<int64_t>(owned.bytes());
    }
    EXPECT_EQ(bytes, 4 * p.flat_weights().numel() / 2);
    const std::vector<spec::GradientBucket>& buckets = made->engine->gradient_buckets();
    const size_t slots = spec::SlotsOf(buckets).size();
    EXPECT_LT(slots, buckets.size()) << "buckets share slots";
    std::set<const void*> begins;
    for (size_t s = 0; s < slots; ++s) {
      size_t largest = 0;
      for (const spec::GradientBucket& bucket : buckets) {
        if (bucket.slot == static_cast<int>(s)) {
          const kernels::TensorView view = p.GradientRange(bucket.begin, bucket.elements());
          begins.insert(view.data);
          largest = std::max(largest, view.bytes());
        }
      }
      bytes += static_cast<int64_t>(largest);
    }
    EXPECT_EQ(begins.size(), slots) << "all of a slot's buckets begin where it does";
    EXPECT_EQ(bytes, made->engine->plan().ClassBytes(spec::BufferClass::kGradients));
  }
}

}  // namespace
}  // namespace hearth::trainer
