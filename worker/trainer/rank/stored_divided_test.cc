// Weights in blocks (weights.store) on several ranks, at each level of parallel.shard: the bits of
// ranks that divide nothing, checkpoints that restore into any number of ranks at any level, and
// plans that have what is used.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/weights/state_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/store_cases.h"
#include "tests/support/trainer/test_gang.h"
#include "tests/support/trainer/test_shards.h"
#include "tests/support/trainer/trained_bits.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/model/stored_weights.h"
#include "worker/trainer/model/weight_walk.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/step/divided_weights.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {
namespace {

// A rank's engine, its exchange, and where its passes have weights from.
struct Rank {
  std::unique_ptr<TestRank> made;
  std::unique_ptr<GradientExchange> exchange;
  std::unique_ptr<WeightSource> source;

  Engine& engine() const { return *made->engine; }
  const ParameterStore& parameters() const { return made->engine->parameters(); }
};

Rank OpenRank(const v1::JobSpec& spec, Collective& comm) {
  Rank rank;
  rank.made = MakeRank(spec, comm);
  auto exchange = GradientExchange::New(rank.engine(), comm, Exchanged::kGradients);
  EXPECT_TRUE(exchange.ok()) << exchange.status();
  rank.exchange = *std::move(exchange);
  if (!rank.parameters().weights_divided()) {
    rank.source = std::make_unique<StoredWeights>(rank.parameters());
    return rank;
  }
  auto divided = DividedWeights::New(rank.engine(), comm, rank.exchange->beside(), true);
  EXPECT_TRUE(divided.ok()) << divided.status();
  rank.source = *std::move(divided);
  return rank;
}

// Runs `body` on every rank at the same time.
void OnRanks(const v1::JobSpec& spec, int ranks, const std::function<void(Rank& rank)>& body) {
  const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      SCOPED_TRACE(testing::Message()
                   << "rank " << r << " of " << ranks << ", " << spec.parallel().shard());
      Rank rank = OpenRank(spec, *comms[static_cast<size_t>(r)]);
      body(rank);
      rank.source.reset();
      rank.exchange.reset();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The weights as passes read them, by parameter.
std::vector<std::string> ReadInPasses(Rank& rank) {
  const ParameterStore& p = rank.parameters();
  const spec::WeightUnits& units = p.units();
  std::vector<std::string> weights(static_cast<size_t>(p.size()));
  const auto keep = [&](int unit) {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (units.of_block[static_cast<size_t>(p.table()[i].block)] == unit) {
        weights[i] = Bytes(p.weight(static_cast<int>(i)));
      }
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE(VisitUnits(rank.engine().exec(), *rank.source, units, keep).ok());
  return weights;
}

// Once weights are gathered: a rank that has all blocks has these, and passes read these weights.
void ExpectWhole(Rank& rank,
                 const std::vector<std::string>& blocks,
                 const std::vector<std::string>& passes) {
  const ParameterStore& p = rank.parameters();
  const std::vector<std::string> read = ReadInPasses(rank);
  for (size_t i = 0; i < read.size(); ++i) {
    const kernels::TensorView& all = p.blocks(static_cast<int>(i));
    EXPECT_EQ(all.empty(), p.weights_divided() || !p.table()[i].stored()) << p.table()[i].name;
    EXPECT_TRUE(all.empty() || Bytes(all) == blocks[i]) << p.table()[i].name;
    EXPECT_TRUE(!p.table()[i].stored() || read[i] == passes[i]) << p.table()[i].name;
  }
}

class StoredDividedTest : public testing::TestWithParam<StoreCase> {
 protected:
  v1::JobSpec Job(std::string_view shard) const {
    v1::JobSpec spec = BlockSizedJob(dir_.path(), GetParam().optimizer);
    spec.mutable_model()->set_layers(3);
    spec.mutable_weights()->set_store(GetParam().store);
    spec.mutable_parallel()->set_shard(std::string(shard));
    // Else the norm, whose order of sums depends on the level, is in the update.
    spec.mutable_optimizer()->set_grad_clip(0);
    return spec;
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Formats, StoredDividedTest, testing::ValuesIn(StoreCases()));

// Random numbers of the rounding depend on the element alone: neither on the rank that updates it
// nor on how many there are.
TEST_P(StoredDividedTest, Updates_OfEveryPiece_GiveTheBitsOfTheWhole) {
  std::map<std::string, std::string> want;
  std::vector<std::string> blocks;
  std::vector<std::string> passes;
  OnRanks(Job("off"), 1, [&](Rank& rank) {
    UpdatePieces(rank.engine(), 1);
    UpdatePieces(rank.engine(), 2);
    Changed changed;
    changed.Add(rank.parameters());
    want = changed.Whole();
    for (int i = 0; i < rank.parameters().size(); ++i) {
      blocks.push_back(Bytes(rank.parameters().blocks(i)));
    }
    passes = ReadInPasses(rank);
  });
  for (const int ranks : {2, 3}) {
    for (const std::string& level : DividingShards()) {
      Changed changed;
      absl::Mutex mu;
      OnRanks(Job(level), ranks, [&](Rank& rank) {
        UpdatePieces(rank.engine(), 1, rank.exchange.get());
        UpdatePieces(rank.engine(), 2, rank.exchange.get());
        {
          const absl::MutexLock lock(&mu);
          changed.Add(rank.parameters());
        }
        ASSERT_TRUE(rank.exchange->GatherWeights(rank.engine().exec()).ok());
        ExpectWhole(rank, blocks, passes);
      });
      EXPECT_TRUE(changed.Whole() == want) << ranks << " ranks, " << level;
    }
  }
}

// How a step updates.
struct StepCase {
  const char* recipe;
  int ranks;
  bool fused;
  const char* gradients;  // gradients.store
};

v1::JobSpec With(v1::JobSpec spec, const StepCase& row) {
  spec.mutable_precision()->set_recipe(row.recipe);
  spec.mutable_precision()->mutable_high_precision_layers()->set_first(0);
  spec.mutable_precision()->mutable_high_precision_layers()->set_last(0);
  spec.mutable_optimizer()->set_fused(row.fused);
  spec.mutable_gradients()->set_store(row.gradients);
  spec.mutable_train()->set_ema(0.9);
  return spec;
}

constexpr StepCase kSteps[] = {
    {"bf16", 2, false, "dtype"}, {"bf16", 3, false, "dtype"}, {"bf16", 3, true, "dtype"},
    {"bf16", 2, false, "fp8"},   {"fp8", 2, false, "dtype"},  {"fp8", 3, true, "dtype"},
    {"fp8", 3, false, "fp8"},
};

// Whole steps at each level, with updates behind backward, in it, and of gradients that waited in
// FP8. Muon adds zeros to matrices of other ranks, which may change the sign of a zero, and FP8
// makes zeros.
TEST_P(StoredDividedTest, Steps_GiveTheSameBitsAtEachLevel) {
  for (const StepCase& row : kSteps) {
    if (GetParam().optimizer == "muon" && std::string_view(row.gradients) == "fp8") {
      continue;
    }
    SCOPED_TRACE(testing::Message() << row.recipe << ", " << row.ranks << " ranks, fused "
                                    << row.fused << ", gradients in " << row.gradients);
    std::vector<double> losses_whole;
    const auto whole = Train(With(Job("off"), row), row.ranks, &losses_whole);
    EXPECT_NE(losses_whole.front(), losses_whole.back()) << "steps that change nothing";
    for (const std::string& level : DividingShards()) {
      std::vector<double> losses;
      EXPECT_TRUE(Train(With(Job(level), row), row.ranks, &losses) == whole) << level;
      EXPECT_EQ(losses, losses_whole) << level;
    }
  }
}

// What a rank keeps and the slots are what the plan counts; ranks send blocks, not BF16 copies.
TEST_P(StoredDividedTest, Plan_HasThePartsAndSlots_AndLessIsSent) {
  for (const std::string& level : DividingShards()) {
    v1::JobSpec plain = Job(level);
    plain.clear_weights();
    int64_t sent_plain = 0;
    const auto sent = [](Rank& rank) {
      auto* const divided = dynamic_cast<DividedWeights*>(rank.source.get());
      return divided != nullptr ? divided->BytesPerPass() : rank.exchange->bytes_per_step(1);
    };
    OnRanks(plain, 2, [&](Rank& rank) {
      if (rank.engine().options().rank == 0) {
        sent_plain = sent(rank);
      }
    });
    OnRanks(Job(level), 2, [&](Rank& rank) {
      const ParameterStore& p = rank.parameters();
      const spec::MemoryPlan& plan = rank.engine().plan();
      const auto bytes = [&plan](const char* name) { return (*plan.Find(name))->bytes; };
      EXPECT_LT(sent(rank), sent_plain);
      const std::vector<int64_t> offsets = spec::TensorOffsets(p.table(), 2);
      const int64_t elements = spec::PlainElements(p.table(), offsets);
      const int64_t blocks = spec::StoredRow(p.table()).Bytes(offsets.back() - elements);
      const int64_t parts = p.weights_divided() ? 2 : 1;
      EXPECT_EQ(bytes("parameters"), 4 * elements / parts);
      EXPECT_EQ(bytes("parameters.blocks"), blocks / parts);
      EXPECT_EQ(plan.Find("parameters.slot.2.blocks").ok(), p.weights_divided());
      size_t own = 0;
      size_t arrived = 0;
      for (size_t u = 0; p.weights_divided() && u < p.units().units.size(); ++u) {
        size_t unit = 0;
        for (const ParameterStore::UnitPart& part : p.UnitParts(static_cast<int>(u))) {
          own += part.own.bytes();
          const bool in_blocks = part.codec != formats::WeightCodec::kNone;
          unit += in_blocks ? part.arrived.bytes() : 0;
          EXPECT_EQ(part.arrived.data == part.whole.data, !p.units().units[u].unpacked());
        }
        arrived = std::max(arrived, unit);
      }
      if (p.weights_divided()) {
        EXPECT_EQ(static_cast<int64_t>(own), bytes("parameters") + bytes("parameters.blocks"));
        EXPECT_EQ(static_cast<int64_t>(arrived), bytes("parameters.slot.2.blocks"));
      }
    });
  }
}

// ---- Checkpoints.

class StoredGangTest : public StoredDividedTest {
 protected:
  Gang Run(std::string_view level,
           int ranks,
           const std::string& folder,
           const v1::CheckpointAnnouncement* from = nullptr) {
    // Two ranks have one micro-batch each: several of them are added up in another order where
    // gradients are divided.
    v1::JobSpec spec = OneEach(Job(level), 2);
    spec.mutable_train()->set_steps(6);
    spec.mutable_train()->set_eval_every(2);
    spec.mutable_checkpoint()->set_every_steps(3);
    LocalKeyValueStore store;
    Gang gang =
        RunGang(store, spec, ranks, dir_.path() + "/" + folder, from == nullptr ? 1 : 2, from);
    for (const v1::TrainerExit& exit : gang.exits) {
      EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    }
    return gang;
  }
  // What is in a checkpoint, whatever ranks have written it.
  static std::map<std::string, std::string> BlocksOf(const std::string& path,
                                                     const std::vector<spec::Parameter>& table) {
    const auto files = weights::StateFiles::Open(Env::Real(), path);
    EXPECT_TRUE(files.ok()) << files.status();
    std::map<std::string, std::string> blocks;
    for (const spec::Parameter& parameter : table) {
      if (!parameter.stored()) {
        continue;
      }
      const std::string name =
          std::string(formats::RowOf(parameter.store).name) + "." + parameter.name;
      for (const auto& [first, piece] : files->Find(name, TensorDType::kU8)) {
        blocks[parameter.name].append(static_cast<const char*>(piece.data),
                                      static_cast<size_t>(piece.bytes()));
      }
      EXPECT_EQ(static_cast<int64_t>(blocks[parameter.name].size()), parameter.stored_bytes());
    }
    return blocks;
  }
};

// What a rank has of them, whole or its pieces, are these.
void ExpectBlocks(const ParameterStore& p, const std::map<std::string, std::string>& blocks) {
  for (int i = 0; i < p.size(); ++i) {
    const std::string& name = p.table()[static_cast<size_t>(i)].name;
    EXPECT_TRUE(p.blocks(i).empty() || Bytes(p.blocks(i)) == blocks.at(name)) << name;
  }
  for (const StorePiece& piece : p.pieces()) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(piece.place.parameter)];
    if (piece.blocks.empty()) {
      continue;
    }
    const int64_t first = formats::RowOf(parameter.store).Bytes(piece.place.first_element);
    EXPECT_TRUE(Bytes(piece.blocks) ==
                blocks.at(parameter.name).substr(static_cast<size_t>(first), piece.blocks.bytes()))
        << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         StoredGangTest,
                         testing::Values(StoreCase{"adamw", "int8"},
                                         StoreCase{"muon", "q4_0"},
                                         StoreCase{"adamw", "nvfp4"}));

// Blocks go into any number of ranks at any level as they are.
TEST_P(StoredGangTest, Checkpoint_OfAnyLevel_RestoresIntoAnyOther) {
  for (const std::string& written : AllShards()) {
    const Gang gang = Run(written, 2, written);
    ASSERT_FALSE(gang.links[0]->checkpoints.empty());
    const v1::CheckpointAnnouncement& last = gang.links[0]->checkpoints.back();
    const auto loaded =
        LoadCheckpoint(Env::Real(), {{last.path(), last.step(), ""}}, Job(written).model());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    for (const int ranks : {1, 2, 3}) {
      for (const std::string& level : AllShards()) {
        OnRanks(Job(level), ranks, [&](Rank& rank) {
          const ParameterStore& p = rank.parameters();
          ASSERT_TRUE(RestoreTensors(rank.engine().exec(), p, *loaded).ok());
          ExpectBlocks(p, BlocksOf(last.path(), p.table()));
        });
      }
    }
  }
}

TEST_P(StoredGangTest, Resume_AtAnotherLevel_GoesOnWithTheSameBits) {
  const Gang whole = Run("optimizer", 2, "whole");
  const FakeLink& leader = *whole.links[0];
  ASSERT_EQ(leader.checkpoints.size(), 2U);
  ASSERT_EQ(leader.steps.size(), 6U);
  const std::unique_ptr<Collective> solo = NewSoloCollective();
  const std::vector<spec::Parameter> table = MakeRank(Job("off"), *solo)->engine->table();
  const auto blocks = BlocksOf(leader.checkpoints[1].path(), table);
  EXPECT_FALSE(blocks == BlocksOf(leader.checkpoints[0].path(), table));
  for (const std::string& level : AllShards()) {
    SCOPED_TRACE(level);
    const Gang resumed = Run(level, 2, "r." + level, &leader.checkpoints[0]);
    const FakeLink& again = *resumed.links[0];
    ASSERT_EQ(again.steps.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(again.steps[i].loss(), leader.steps[i + 3].loss()) << i;
    }
    EXPECT_TRUE(BlocksOf(again.checkpoints.back().path(), table) == blocks);
    EXPECT_TRUE(*Env::Real().ReadFile(again.checkpoints.back().path() + "/model.safetensors") ==
                *Env::Real().ReadFile(leader.checkpoints[1].path() + "/model.safetensors"));
  }
  // One rank adds gradients up in another order, and a code that is rounded the other way is a
  // whole step of the grid.
  const Gang one = Run("weights", 1, "one", &leader.checkpoints[0]);
  ASSERT_EQ(one.links[0]->steps.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(one.links[0]->steps[i].loss() / leader.steps[i + 3].loss(), 1.0, 0.03) << i;
  }
}

}  // namespace
}  // namespace hearth::trainer
