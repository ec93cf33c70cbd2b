// Divided gradients: slots that buckets use in turn, and the sums that each rank keeps. Sums in a
// format with blocks.
#include "worker/trainer/step/exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"
#include "tests/support/trainer/test_shards.h"

namespace hearth::trainer {
namespace {

// What backward of a rank makes of one element in one micro-batch: a whole number, so that sums are
// exact in any order.
float GradientAt(int rank, int micro_batch, int parameter, int64_t element) {
  const int64_t value = parameter + 5 * element + int64_t{11} * rank + int64_t{13} * micro_batch;
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

using GradientOf = std::function<float(int parameter, int64_t element)>;

// What the model does in backward, with made-up gradients: at each moment it writes all elements
// that it has, after it was told that it may. The head's part of a tied embedding is written first.
void Backward(const Engine& engine, GradientExchange& exchange, const GradientOf& gradient_of) {
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
        gradient[e] = gradient_of(i, e);
      }
    }
    ASSERT_TRUE(exchange.AfterBackward(engine.exec(), moment).ok());
  }
}

// A rank that sits out: nothing is written.
void SitOut(const Engine& engine, GradientExchange& exchange) {
  const spec::StepTimeline time = spec::TimelineOf(engine.shape());
  for (int32_t moment = time.Head(); moment < time.Update(); ++moment) {
    ASSERT_TRUE(exchange.BeforeBackward(engine.exec(), moment).ok());
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

// Two steps of three rounds, the second of which begins its sums again; the first round of each is
// idle on all ranks but the first.
void RunDividedSteps(const Engine& engine, GradientExchange& exchange, int rank, int ranks) {
  for (const std::vector<int>& micro_batches : {std::vector{0, 1, 2}, std::vector{3, 4, 5}}) {
    for (int round = 0; round < 3; ++round) {
      SpoilSlots(engine);
      const bool idle = round == 0 && rank > 0;
      const PassExchange pass = {.first = round == 0, .last = round == 2, .idle = idle};
      ASSERT_TRUE(exchange.BeginPass(engine.exec(), pass).ok());
      if (idle) {
        SitOut(engine, exchange);
      } else {
        const int micro_batch = micro_batches[static_cast<size_t>(round)];
        Backward(engine, exchange, [rank, micro_batch](int parameter, int64_t element) {
          return GradientAt(rank, micro_batch, parameter, element);
        });
      }
      ASSERT_TRUE(exchange.FinishPass(engine.exec()).ok());
    }
    ExpectSums(engine, ranks, micro_batches);
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
        RunDividedSteps(engine, **exchange, rank, ranks);
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

// ---- Sums in a format with blocks, among ranks that Gloo connects.

// A row for each parameter, in it a sum for each element.
using Sums = std::vector<std::vector<float>>;
constexpr float kAbsent = -1e30F;

// Numbers of both signs, over twelve powers of two, some zero.
float RealAt(int rank, int parameter, int64_t element) {
  const auto place = static_cast<uint64_t>(element * 131 + int64_t{17} * parameter + rank);
  const uint64_t hash = (place + 1) * 0x9E3779B97F4A7C15U >> 20;
  const float magnitude = 1.0F + static_cast<float>(hash % 1021) / 1021.0F;
  return hash % 19 == 0 ? 0.0F
                        : std::ldexp(hash % 2 == 0 ? magnitude : -magnitude,
                                     -10 - static_cast<int>(hash % 12));
}

class BlockSumsTest : public testing::TestWithParam<int> {
 protected:
  struct Outcome {
    Sums sums;
    int64_t bytes = 0;     // that a rank sends
    int64_t elements = 0;  // of all buckets
  };

  // What the ranks have after a step of one micro-batch each. Where several have a sum, they have
  // the same bits. A rank's gradients of the elements 5 and 9 of parameter 0 are `special`.
  Outcome Exchange(const std::string& format,
                   const std::string& shard,
                   const std::vector<std::pair<float, float>>& special) const {
    const auto ranks = static_cast<size_t>(GetParam());
    v1::JobSpec spec = SmallJob(dir_.path());
    spec.mutable_gradients()->set_reduce_dtype(format);
    spec.mutable_parallel()->set_shard(shard);
    LocalKeyValueStore store;
    std::vector<Outcome> outcomes(ranks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        GlooOptions options;
        options.rank = static_cast<int>(rank);
        options.world_size = GetParam();
        const auto comm = NewGlooCollective(options, store);
        ASSERT_TRUE(comm.ok()) << comm.status();
        outcomes[rank] = RunOne(spec, **comm, special[rank]);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    Outcome all = outcomes[0];
    for (size_t rank = 1; rank < ranks; ++rank) {
      EXPECT_EQ(outcomes[rank].bytes, all.bytes);
      Merge(outcomes[rank].sums, all.sums);
    }
    return all;
  }

  std::vector<std::pair<float, float>> Nothing() const {
    return std::vector<std::pair<float, float>>(static_cast<size_t>(GetParam()));
  }

 private:
  static Outcome RunOne(const v1::JobSpec& spec,
                        Collective& comm,
                        const std::pair<float, float>& special) {
    Outcome outcome;
    const std::unique_ptr<TestRank> made = MakeRank(spec, comm);
    const Engine& engine = *made->engine;
    const auto exchange = GradientExchange::New(*made->engine, comm, Exchanged::kGradients);
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    EXPECT_TRUE((*exchange)->BeginPass(engine.exec(), {.first = true, .last = true}).ok());
    Backward(engine, **exchange, [&](int parameter, int64_t element) {
      return parameter == 0 && element == 5   ? special.first
             : parameter == 0 && element == 9 ? special.second
                                              : RealAt(comm.rank(), parameter, element);
    });
    EXPECT_TRUE((*exchange)->FinishPass(engine.exec()).ok());
    for (const spec::Parameter& parameter : engine.parameters().table()) {
      outcome.sums.emplace_back(static_cast<size_t>(parameter.logical_elements()), kAbsent);
    }
    for (const StorePiece& piece : engine.parameters().pieces()) {
      std::vector<float>& sums = outcome.sums[static_cast<size_t>(piece.place.parameter)];
      for (int64_t k = 0; k < piece.place.elements; ++k) {
        const auto element = static_cast<size_t>(piece.place.first_element + k);
        if (element < sums.size()) {
          sums[element] = piece.gradient.as<float>()[k];
        }
      }
    }
    for (const spec::GradientBucket& bucket : engine.gradient_buckets()) {
      outcome.elements += bucket.elements();
    }
    outcome.bytes = (*exchange)->bytes_per_step(1);
    return outcome;
  }

  static void Merge(const Sums& from, Sums& into) {
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t e = 0; e < from[i].size(); ++e) {
        if (from[i][e] == kAbsent) {
          continue;
        }
        if (into[i][e] != kAbsent) {
          ASSERT_EQ(std::bit_cast<uint32_t>(into[i][e]), std::bit_cast<uint32_t>(from[i][e]))
              << i << "[" << e << "]";
        }
        into[i][e] = from[i][e];
      }
    }
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, BlockSumsTest, testing::Values(2, 3, 4));

TEST_P(BlockSumsTest, Sums_AreNearThoseOfFp32_AndTheSameBitsAtEveryLevel) {
  const Sums exact = Exchange("fp32", "off", Nothing()).sums;
  const Sums off = Exchange("fp8", "off", Nothing()).sums;
  for (size_t i = 0; i < exact.size(); ++i) {
    for (size_t e = 0; e < exact[i].size(); ++e) {
      // 3 bits behind the leading one, or a step of the block's scale: the largest is below 2^-9.
      double bound = std::ldexp(std::fabs(exact[i][e]), -7);
      for (int rank = 0; rank < GetParam(); ++rank) {
        const auto parameter = static_cast<int>(i);
        const float own = RealAt(rank, parameter, static_cast<int64_t>(e));
        bound += std::max(std::fabs(own) / 16.0, std::ldexp(1.0, -9 - 17));
      }
      ASSERT_NEAR(off[i][e], exact[i][e], bound) << i << "[" << e << "]";
    }
  }
  EXPECT_NE(off, exact) << "nothing was rounded";
  // The levels cut the gradients into other buckets and parts.
  for (const std::string& shard : DividingShards()) {
    EXPECT_EQ(Exchange("fp8", shard, Nothing()).sums, off) << shard;
  }
}

TEST_P(BlockSumsTest, NotFinite_ReachesEveryRank_AndNoOtherElement) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::pair<float, float>> special = Nothing();
  special.back() = {kNan, -kInfinity};
  for (const std::string& shard : AllShards()) {
    SCOPED_TRACE(shard);
    Sums clean = Exchange("fp8", shard, Nothing()).sums;
    Sums spoiled = Exchange("fp8", shard, special).sums;
    for (const size_t element : {5, 9}) {
      EXPECT_TRUE(std::isnan(spoiled[0][element]));
      EXPECT_EQ(clean[0][element], 0);
      spoiled[0][element] = 0;
    }
    EXPECT_EQ(spoiled, clean);
  }
}

TEST_P(BlockSumsTest, BytesOnTheWay_AreThoseOfTheFormat) {
  const int64_t ranks = GetParam();
  const Outcome off = Exchange("fp8", "off", Nothing());
  // Whole blocks for every rank: at most that many elements more than there are.
  const double sent = 1 + 1.0 / 128 + 2;
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  EXPECT_GE(static_cast<double>(off.bytes), sent * share * static_cast<double>(off.elements));
  EXPECT_LT(static_cast<double>(off.bytes),
            sent * share * static_cast<double>(off.elements + 128 * ranks));
  for (const spec::ShardRow& row : spec::ShardRows()) {
    if (!row.optimizer) {
      continue;
    }
    const Outcome divided = Exchange("fp8", std::string(row.name), Nothing());
    const int64_t n = divided.elements;
    // The owners hand whole weights round, in fp32, unless no rank has them.
    const int64_t weights = row.weights ? 0 : 4 * n;
    EXPECT_EQ(divided.bytes, (n + n / 128 + weights) / ranks * (ranks - 1)) << row.name;
  }
}

}  // namespace
}  // namespace hearth::trainer
