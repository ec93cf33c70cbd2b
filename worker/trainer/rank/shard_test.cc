// A sharded optimizer: the same bits as the whole one, and checkpoints that restore into any number
// of ranks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "common/base/system.h"
#include "common/formats/codecs.h"
#include "common/io/faulty_env.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/plan_inputs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/state_cases.h"
#include "tests/support/trainer/test_gang.h"
#include "tests/support/trainer/test_recipes.h"
#include "tests/support/trainer/test_shards.h"
#include "tests/support/trainer/trained_bits.h"
#include "worker/trainer/checkpoint/background_writer.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/checkpoint/shards.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

v1::JobSpec ShardedJob(const std::string& dir, std::string_view recipe, int ranks) {
  v1::JobSpec spec = SmallJob(dir, "qwen2");
  spec.mutable_precision()->set_recipe(std::string(recipe));
  spec.mutable_model()->set_vocab(131);  // padded: the last rows belong to nobody's checkpoint
  spec.mutable_parallel()->set_shard(ranks > 1 ? "optimizer" : "off");
  return spec;
}

std::unique_ptr<Engine> MakeEngine(const v1::JobSpec& spec,
                                   int rank,
                                   int ranks,
                                   spec::ShardLevel shard = spec::ShardLevel::kOptimizer) {
  EngineOptions options;
  options.spec = spec;
  options.micro_batch = 1;
  options.world_size = ranks;
  options.rank = rank;
  options.shard = ranks > 1 ? shard : spec::ShardLevel::kOff;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Initialise().ok());
  return *std::move(engine);
}

bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

class ShardTest : public testing::TestWithParam<std::string> {
 protected:
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Recipes, ShardTest, testing::ValuesIn(PlainRecipes()));

TEST_P(ShardTest, Updates_OfEveryPiece_GiveTheBitsOfTheWhole) {
  const v1::JobSpec spec = ShardedJob(dir_.path(), GetParam(), 1);
  const std::unique_ptr<Engine> whole = MakeEngine(spec, 0, 1);
  UpdatePieces(*whole, 1);
  UpdatePieces(*whole, 2);
  const std::vector<StorePiece>& tensors = whole->parameters().pieces();
  for (const int ranks : {2, 3, 5}) {
    std::vector<int64_t> seen(tensors.size(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::unique_ptr<Engine> engine = MakeEngine(spec, rank, ranks);
      const ParameterStore& p = engine->parameters();
      EXPECT_TRUE(p.sharded());
      EXPECT_EQ(p.flat_weights().numel() / ranks,
                engine->plan().ClassBytes(spec::BufferClass::kOptimizer) / 8);
      UpdatePieces(*engine, 1);
      UpdatePieces(*engine, 2);
      for (const StorePiece& piece : p.pieces()) {
        const auto i = static_cast<size_t>(piece.place.parameter);
        const int64_t first = piece.place.first_element;
        const int64_t n = piece.place.elements;
        seen[i] += n;
        EXPECT_TRUE(SameBits(piece.master.as<float>(), tensors[i].master.as<float>() + first, n));
        EXPECT_TRUE(SameBits(piece.weight.as<float>(), tensors[i].weight.as<float>() + first, n));
        for (size_t k = 0; k < piece.states.size(); ++k) {
          EXPECT_TRUE(
              SameBits(piece.states[k].as<float>(), tensors[i].states[k].as<float>() + first, n))
              << p.table()[i].name << " of rank " << rank << " of " << ranks;
        }
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(seen[i], tensors[i].place.elements);
    }
  }
}

TEST_P(ShardTest, Initialise_EveryRank_HasTheWholeWeights) {
  const v1::JobSpec spec = ShardedJob(dir_.path(), GetParam(), 1);
  const std::unique_ptr<Engine> whole = MakeEngine(spec, 0, 1);
  for (int rank = 0; rank < 3; ++rank) {
    const std::unique_ptr<Engine> engine = MakeEngine(spec, rank, 3);
    for (int i = 0; i < engine->parameters().size(); ++i) {
      const kernels::TensorView& weight = engine->parameters().weight(i);
      EXPECT_TRUE(
          SameBits(weight.as<float>(), whole->parameters().weight(i).as<float>(), weight.numel()));
    }
  }
}

// ---- Formats of optimizer state, of each optimizer that keeps its state so, with masters and
// without.

// Matrices of 4096 elements and more, so that formats in blocks take them.
v1::JobSpec Wide(v1::JobSpec spec, const StateCase& row) {
  spec = WithOptimizer(std::move(spec), row.optimizer);
  spec.mutable_model()->set_hidden(64);
  spec.mutable_model()->set_head_dim(16);
  spec.mutable_model()->set_ffn_hidden(96);
  spec.mutable_optimizer()->set_state(std::string(row.state));
  spec.mutable_optimizer()->set_master(row.master);
  return spec;
}

class StateFormatTest : public testing::TestWithParam<StateCase> {
 protected:
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Formats, StateFormatTest, testing::ValuesIn(StateCases()));

// Bytes of what one piece has, as its rows say.
int64_t StateBytes(const ParameterStore& p, const StorePiece& piece) {
  int64_t bytes = 0;
  for (const spec::ParameterState& state :
       p.table()[static_cast<size_t>(piece.place.parameter)].states) {
    bytes += DTypeBytes(state.dtype, state.Count(piece.place.elements));
  }
  return bytes;
}

// After two updates a rank has in its pieces what the whole has there, bit for bit.
void ExpectPiecesOfTheWhole(const ParameterStore& p, const std::vector<StorePiece>& tensors) {
  for (const StorePiece& piece : p.pieces()) {
    const auto i = static_cast<size_t>(piece.place.parameter);
    const int64_t first = piece.place.first_element;
    EXPECT_TRUE(SameBits(piece.master.as<float>(), tensors[i].master.as<float>() + first,
                         piece.place.elements))
        << p.table()[i].name;
    for (size_t k = 0; k < piece.states.size(); ++k) {
      const spec::ParameterState& state = p.table()[i].states[k];
      const auto* const from =
          tensors[i].states[k].as<uint8_t>() + DTypeBytes(state.dtype, state.Count(first));
      EXPECT_EQ(std::memcmp(piece.states[k].data, from, piece.states[k].bytes()), 0)
          << p.table()[i].name << " " << state.TensorName();
    }
  }
}

TEST_P(StateFormatTest, Updates_OfEveryPiece_GiveTheBitsOfTheWhole_AndPlansCountThem) {
  const v1::JobSpec spec = Wide(ShardedJob(dir_.path(), "bf16", 1), GetParam());
  const std::unique_ptr<Engine> whole = MakeEngine(spec, 0, 1);
  UpdatePieces(*whole, 1);
  UpdatePieces(*whole, 2);
  const std::vector<StorePiece>& tensors = whole->parameters().pieces();
  int64_t bytes = 0;
  for (const StorePiece& tensor : tensors) {
    bytes += StateBytes(whole->parameters(), tensor);
  }
  const int64_t planned = whole->plan().ClassBytes(spec::BufferClass::kOptimizer);
  EXPECT_GE(planned, bytes);
  // Tensors begin at multiples of 256 elements, of at most 8 bytes.
  EXPECT_LE(planned, bytes + int64_t{8} * 256 * static_cast<int64_t>(tensors.size() + 1));
  const bool no_masters = spec.optimizer().master() == "none";
  EXPECT_EQ(whole->plan().ClassBytes(spec::BufferClass::kMasters) == 0, no_masters);
  const size_t levels = GetParam().needs_whole ? 0 : spec::ShardRows().size();
  for (size_t i = 2; i < 2 * levels; ++i) {  // row 0 is off
    const spec::ShardRow& row = spec::ShardRows()[i / 2];
    const int ranks = i % 2 == 0 ? 2 : 4;
    // Ranks at the same time: some optimizers exchange whole gradients.
    const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks << ", " << row.name);
        const std::unique_ptr<Engine> engine = MakeEngine(spec, rank, ranks, row.level);
        const auto exchange = GradientExchange::New(*engine, *comms[static_cast<size_t>(rank)],
                                                    Exchanged::kGradients);
        ASSERT_TRUE(exchange.ok()) << exchange.status();
        UpdatePieces(*engine, 1, exchange->get());
        UpdatePieces(*engine, 2, exchange->get());
        ExpectPiecesOfTheWhole(engine->parameters(), tensors);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

// ---- Checkpoints.

// What the state tensor `kind` (0: masters) of a parameter holds at an element.
float ValueOf(size_t kind, int parameter, int64_t element) {
  return 1.0F + static_cast<float>(kind) * 0.25F + static_cast<float>(parameter) * 0.0078125F +
         static_cast<float>(element) * 1.1920929e-7F;
}

std::vector<float> Values(size_t kind, int parameter, int64_t first, int64_t count) {
  std::vector<float> values;
  for (int64_t e = first; e < first + count; ++e) {
    values.push_back(ValueOf(kind, parameter, e));
  }
  return values;
}

void FillState(const Engine& engine) {
  const ParameterStore& p = engine.parameters();
  for (int i = 0; i < p.size(); ++i) {
    std::vector<float> master = Values(0, i, 0, p.weight(i).numel());
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    std::fill(master.begin() + parameter.logical_elements(), master.end(), 0.0F);
    const auto values = [&master](int64_t first, absl::Span<float> out) {
      std::copy_n(master.data() + first, out.size(), out.data());
      return absl::OkStatus();
    };
    const auto upload = Upload::New(engine.exec());
    ASSERT_TRUE(upload.ok() && p.WriteParameter(engine.exec(), **upload, i, values).ok());
  }
  for (const StorePiece& piece : p.pieces()) {
    for (size_t k = 0; k < piece.states.size(); ++k) {
      const std::vector<float> values =
          Values(k + 1, piece.place.parameter, piece.place.first_element, piece.place.elements);
      ASSERT_TRUE(p.Write(engine.exec(), piece.states[k], values.data()).ok());
    }
  }
}

void ExpectState(const Engine& engine, bool bf16) {
  const ParameterStore& p = engine.parameters();
  for (const StorePiece& piece : p.pieces()) {
    const int i = piece.place.parameter;
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    const int64_t first = piece.place.first_element;
    for (int64_t e = 0; e < piece.place.elements; ++e) {
      const bool padding = first + e >= parameter.logical_elements();
      ASSERT_EQ(piece.master.as<float>()[e], padding ? 0 : ValueOf(0, i, first + e))
          << parameter.name << "[" << first + e << "]";
      for (size_t k = 0; k < piece.states.size(); ++k) {
        ASSERT_EQ(piece.states[k].as<float>()[e], padding ? 0 : ValueOf(k + 1, i, first + e));
      }
    }
  }
  for (int i = 0; i < p.size(); ++i) {
    for (int64_t e = 0; e < p.table()[static_cast<size_t>(i)].logical_elements(); ++e) {
      const float master = ValueOf(0, i, e);
      ASSERT_EQ(p.weight(i).as<float>()[e],
                bf16 ? formats::DecodeBf16(formats::EncodeBf16(master)) : master);
    }
  }
}

// Ranks as threads that write checkpoints of a made-up state together.
class SavedTest : public ShardTest {
 protected:
  struct Outcome {
    std::vector<absl::StatusOr<CommittedCheckpoint>> ranks;
  };
  bool bf16() const {
    return spec::FindRecipe(GetParam())->parameters.storage == spec::DType::kBF16;
  }
  std::string folder() const { return dir_.path() + "/c"; }

  // `env` of one rank may be another than the machine's; ranks of which it is null do not write.
  Outcome Save(int ranks, int64_t step, const std::vector<Env*>& envs, absl::Duration timeout) {
    const v1::JobSpec spec = ShardedJob(dir_.path(), GetParam(), ranks);
    std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
    std::vector<std::unique_ptr<TestRank>> all;
    LocalKeyValueStore store;
    Outcome outcome;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(MakeRank(spec, *comms[static_cast<size_t>(rank)]));
      FillState(*all.back()->engine);
      outcome.ranks.emplace_back(absl::CancelledError("did not write"));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (envs[r] == nullptr) {
        continue;
      }
      threads.emplace_back([&, r] {
        CheckpointContent content = MakeCheckpointContent(*all[r]->engine, *all[r]->trainer,
                                                          all[r]->batch, ranks, {"job", 3, 0, ""});
        content.meta.step = step;
        content.sharded.store = &store;
        content.sharded.timeout = timeout;
        BackgroundWriter writer(*envs[r], Clock::Real(), folder(), 0);
        EXPECT_TRUE(writer.Submit(content).ok());
        outcome.ranks[r] = *writer.Take(true);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return outcome;
  }
  std::string SaveAll(int ranks, int64_t step) {
    const Outcome outcome =
        Save(ranks, step, std::vector<Env*>(static_cast<size_t>(ranks), &Env::Real()),
             absl::Minutes(10));
    for (const auto& rank : outcome.ranks) {
      EXPECT_TRUE(rank.ok()) << rank.status();
    }
    return outcome.ranks[0].ok() ? outcome.ranks[0]->path : "";
  }
  absl::StatusOr<LoadedCheckpoint> Load(const std::vector<CheckpointCandidate>& candidates) {
    return LoadCheckpoint(Env::Real(), candidates, ShardedJob(dir_.path(), GetParam(), 1).model());
  }
};
INSTANTIATE_TEST_SUITE_P(Recipes, SavedTest, testing::ValuesIn(PlainRecipes()));

TEST_P(SavedTest, WrittenByAnyNumberOfRanks_RestoresIntoAny) {
  for (const int before : {1, 3, 4}) {
    const std::string path = SaveAll(before, before);
    const absl::StatusOr<LoadedCheckpoint> loaded = Load({{path, before, ""}});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->meta.shards, before);
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(before) + " -> " + std::to_string(ranks));
      const v1::JobSpec spec = ShardedJob(dir_.path(), GetParam(), ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::unique_ptr<Engine> engine = MakeEngine(spec, rank, ranks);
        const absl::Status restored = RestoreTensors(engine->exec(), engine->parameters(), *loaded);
        ASSERT_TRUE(restored.ok()) << restored;
        ExpectState(*engine, bf16());
      }
    }
  }
  EXPECT_EQ(ListCheckpointSteps(Env::Real(), folder()), (std::vector<int64_t>{1, 3, 4}));
}

TEST_P(SavedTest, WrittenByFour_ModelIsThatOfOne) {
  const std::string one = SaveAll(1, 1);
  const std::string four = SaveAll(4, 4);
  EXPECT_EQ(*Env::Real().ReadFile(one + "/model.safetensors"),
            *Env::Real().ReadFile(four + "/model.safetensors"));
}

TEST_P(SavedTest, TornShard_TheOneBeforeIsUsed_AndItIsSaid) {
  const std::string older = SaveAll(2, 5);
  const std::string newer = SaveAll(4, 6);
  const std::string shard = newer + "/" + ShardFile(2, 4);
  const std::string bytes = *Env::Real().ReadFile(shard);
  std::string damaged = bytes;
  damaged[bytes.size() - 5] ^= 1;
  for (const std::string& bad : {bytes.substr(0, bytes.size() / 2), damaged, std::string()}) {
    ASSERT_TRUE(Env::Real().RemoveAll(shard).ok());
    if (!bad.empty()) {
      ASSERT_TRUE(Env::Real().WriteFileAtomically(shard, bad).ok());
    }
    EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(Env::Real(), newer)));
    const absl::StatusOr<LoadedCheckpoint> loaded = Load({{newer, 6, ""}, {older, 5, ""}});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->meta.step, 5);
    ASSERT_EQ(loaded->notes.size(), 2U);
    EXPECT_THAT(loaded->notes[0], HasSubstr(ShardFile(2, 4)));
    const auto engine = MakeEngine(ShardedJob(dir_.path(), GetParam(), 1), 0, 1);
    ASSERT_TRUE(RestoreTensors(engine->exec(), engine->parameters(), *loaded).ok());
    ExpectState(*engine, bf16());
  }
}

TEST_P(SavedTest, ARankThatDoesNotWrite_FailsTheCheckpoint_NamingIt) {
  const std::string older = SaveAll(3, 1);
  Env* real = &Env::Real();
  const Outcome missing = Save(2, 2, {real, nullptr}, absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(missing.ranks[0].status())) << missing.ranks[0].status();
  EXPECT_THAT(std::string(missing.ranks[0].status().message()), HasSubstr("rank 1 is missing"));
  FaultyEnv full(Env::Real());
  full.SetDiskSpace(1000);
  const Outcome failed = Save(3, 3, {real, &full, real}, absl::Minutes(10));
  EXPECT_TRUE(absl::IsUnavailable(failed.ranks[0].status())) << failed.ranks[0].status();
  EXPECT_THAT(std::string(failed.ranks[0].status().message()),
              HasSubstr("rank 1 could not write its part"));
  EXPECT_TRUE(absl::IsResourceExhausted(failed.ranks[1].status())) << failed.ranks[1].status();
  // Rank 0 may have removed the folder before rank 2 came to write there.
  EXPECT_TRUE(failed.ranks[2].ok() || absl::IsNotFound(failed.ranks[2].status()))
      << failed.ranks[2].status();
  // Nothing half-written is left, and what was there still is.
  EXPECT_EQ(*Env::Real().ListDir(folder()), (std::vector<std::string>{"step-00000001"}));
  EXPECT_TRUE(VerifyCheckpoint(Env::Real(), older).ok());
}

TEST_P(SavedTest, RankZeroWithoutADisk_TheOthersDoNotWaitForIt) {
  FaultyEnv broken(Env::Real());
  broken.FailAfter(1, absl::PermissionDeniedError("no such disk"), /*sticky=*/true);
  Env* real = &Env::Real();
  const Outcome outcome = Save(2, 1, {&broken, real}, absl::Minutes(10));
  EXPECT_FALSE(outcome.ranks[0].ok());
  EXPECT_TRUE(absl::IsUnavailable(outcome.ranks[1].status())) << outcome.ranks[1].status();
  EXPECT_THAT(std::string(outcome.ranks[1].status().message()), HasSubstr("no such disk"));
}

// ---- Whole runs.

class ShardedRunTest : public testing::Test {
 protected:
  v1::JobSpec Job(const std::string& shard) {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_precision()->set_recipe("fp8");
    spec.mutable_model()->set_head_dim(8);
    spec.mutable_model()->set_ffn_hidden(32);
    spec.mutable_train()->set_steps(12);
    spec.mutable_train()->set_eval_every(5);
    spec.mutable_checkpoint()->set_every_steps(3);
    spec.mutable_parallel()->set_shard(shard);
    return spec;
  }

  Gang Run(const v1::JobSpec& spec,
           int ranks,
           const std::string& folder,
           int64_t epoch,
           const v1::CheckpointAnnouncement* from) {
    LocalKeyValueStore store;
    Gang gang = RunWith(store, spec, ranks, folder, epoch, from);
    for (const v1::TrainerExit& exit : gang.exits) {
      EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    }
    return gang;
  }

  Gang RunWith(KeyValueStore& store,
               const v1::JobSpec& spec,
               int ranks,
               const std::string& folder,
               int64_t epoch,
               const v1::CheckpointAnnouncement* from) {
    return RunGang(store, spec, ranks, dir_.path() + "/" + folder, epoch, from);
  }
  TempDir dir_;
};

class ShardLevelRunTest : public ShardedRunTest, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, ShardLevelRunTest, testing::ValuesIn(DividingShards()));

// Checkpoints know nothing of the level: runs go on at another one, on another number of ranks.
TEST_P(ShardLevelRunTest, FourRanks_ResumedByAnyNumberAtAnyLevel_FollowTheCurveOfOne) {
  const Gang one = Run(Job("off"), 1, "one", 1, nullptr);
  const Gang four = Run(Job(GetParam()), 4, "four", 1, nullptr);
  const FakeLink& leader = *four.links[0];
  ASSERT_EQ(leader.checkpoints.size(), 4U);
  ASSERT_EQ(leader.steps.size(), 12U);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(leader.steps[i].loss() / one.links[0]->steps[i].loss(), 1.0, 1e-3) << i + 1;
  }
  for (size_t rank = 1; rank < 4; ++rank) {
    EXPECT_TRUE(four.links[rank]->checkpoints.empty());
  }
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const std::string level = ranks == 3 ? "off" : ranks == 2 ? "optimizer" : GetParam();
    const Gang resumed =
        Run(Job(level), ranks, "r" + std::to_string(ranks), 2, &leader.checkpoints[1]);
    const FakeLink& again = *resumed.links[0];
    EXPECT_EQ(again.run_info.start_step(), 6);
    ASSERT_EQ(again.steps.size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
      const double ratio = again.steps[i].loss() / leader.steps[i + 6].loss();
      EXPECT_NEAR(ratio, 1.0, ranks == 4 ? 0.0 : 1e-3) << "step " << i + 7;
    }
    if (ranks == 4) {
      EXPECT_EQ(*Env::Real().ReadFile(again.checkpoints.back().path() + "/model.safetensors"),
                *Env::Real().ReadFile(leader.checkpoints.back().path() + "/model.safetensors"));
    }
  }
}

TEST_P(ShardLevelRunTest, OneTwoAndFourRanksInFp32_HaveTheLossesOfOneThatDividesNothing) {
  const auto fp32 = [this](const std::string& shard) {
    v1::JobSpec job = Job(shard);
    job.mutable_precision()->set_recipe("fp32");
    job.mutable_checkpoint()->set_every_steps(0);
    return job;
  };
  const Gang one = Run(fp32("off"), 1, "fp32", 1, nullptr);
  const auto& expected = one.links[0]->steps;
  ASSERT_EQ(expected.size(), 12U);
  EXPECT_LT(expected.back().loss(), 0.99 * expected.front().loss());
  for (const std::string& level : {GetParam(), std::string("off")}) {
    for (const int ranks : {1, 2, 4}) {
      const Gang gang =
          Run(fp32(level), ranks, "fp32-" + level + std::to_string(ranks), 1, nullptr);
      const auto& steps = gang.links[0]->steps;
      ASSERT_EQ(steps.size(), expected.size()) << level << ", " << ranks << " ranks";
      for (size_t i = 0; i < steps.size(); ++i) {
        EXPECT_NEAR(steps[i].loss() / expected[i].loss(), 1.0, 1e-4)
            << level << ", " << ranks << " ranks, step " << i + 1;
      }
    }
  }
}

class StateFormatRunTest : public ShardedRunTest, public testing::WithParamInterface<StateCase> {
 protected:
  v1::JobSpec Formatted(const std::string& shard, const StateCase& row) {
    v1::JobSpec spec = Job(shard);
    spec.mutable_precision()->set_recipe("bf16");
    return Wide(std::move(spec), row);
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, StateFormatRunTest, testing::ValuesIn(StateCases()));

TEST_P(StateFormatRunTest, Training_FollowsFp32_AndResumesExactly_OnAnyNumberOfRanks) {
  const std::string_view state = GetParam().state;
  const v1::JobSpec spec = Formatted(GetParam().needs_whole ? "off" : "optimizer", GetParam());
  const Gang plain =
      Run(Formatted("off", {GetParam().optimizer, "fp32", "fp32"}), 1, "plain", 1, nullptr);
  const Gang two = Run(spec, 2, "two", 1, nullptr);
  const FakeLink& leader = *two.links[0];
  ASSERT_EQ(leader.steps.size(), 12U);
  EXPECT_LT(leader.steps[11].loss(), leader.steps[0].loss());
  // A guard against broken training, not a measure of quality: after 12 steps int4 was 2.1 % above
  // FP32 here, the others less than 2 % from it.
  const double bound = state == "int4" ? 0.05 : 0.02;
  EXPECT_NEAR(leader.steps[11].loss() / plain.links[0]->steps[11].loss(), 1.0, bound);
  for (const int ranks : {1, 2}) {
    const Gang resumed =
        Run(spec, ranks, "resumed" + std::to_string(ranks), 2, &leader.checkpoints[1]);
    const FakeLink& again = *resumed.links[0];
    ASSERT_EQ(again.steps.size(), 6U);
    // One rank adds up in another order; stochastic rounding makes that 0.2 % on some CPUs.
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(again.steps[i].loss() / leader.steps[i + 6].loss(), 1.0, ranks == 2 ? 0 : 5e-3);
    }
    if (ranks == 2) {
      EXPECT_EQ(*Env::Real().ReadFile(again.checkpoints.back().path() + "/model.safetensors"),
                *Env::Real().ReadFile(leader.checkpoints.back().path() + "/model.safetensors"));
    }
  }
}

class OptimizerRunTest : public ShardedRunTest,
                         public testing::WithParamInterface<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerRunTest, testing::ValuesIn(spec::OptimizerNames()));

TEST_P(OptimizerRunTest, FourRanksResumedByFourOrOne_FollowTheirCurve) {
  const v1::JobSpec spec = WithOptimizer(Job("optimizer"), GetParam());
  const Gang four = Run(spec, 4, "four", 1, nullptr);
  const FakeLink& leader = *four.links[0];
  ASSERT_EQ(leader.checkpoints.size(), 4U);
  for (const int ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    const Gang resumed = Run(spec, ranks, "r" + std::to_string(ranks), 2, &leader.checkpoints[1]);
    const FakeLink& again = *resumed.links[0];
    ASSERT_EQ(again.steps.size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(again.steps[i].loss() / leader.steps[i + 6].loss(), 1.0, ranks == 4 ? 0.0 : 1e-3)
          << "step " << i + 7;
    }
  }
}

// Rank 1 can never write its part.
class PartlessStore : public LocalKeyValueStore {
 public:
  absl::Status Put(std::string_view key, std::string_view value) override {
    const std::string name(key);
    const bool part = name.rfind("checkpoint/", 0) == 0 && name.size() > 2 &&
                      name.compare(name.size() - 2, 2, "/1") == 0;
    return LocalKeyValueStore::Put(key, part ? "failed: read-only file system" : value);
  }
};

TEST_F(ShardedRunTest, ARankThatNeverWritesItsPart_EndsTheRunAfterThreeCheckpoints) {
  PartlessStore store;
  v1::JobSpec spec = Job("optimizer");
  spec.mutable_train()->set_steps(60);
  const Gang gang = RunWith(store, spec, 2, "partless", 1, nullptr);
  EXPECT_EQ(gang.exits[0].reason(), v1::EXIT_REASON_IO) << gang.exits[0].message();
  EXPECT_THAT(gang.exits[0].message(), HasSubstr("rank 1 could not write its part"));
  EXPECT_LT(gang.exits[0].step(), 30);
  EXPECT_GE(gang.exits[0].step(), 9);
  EXPECT_TRUE(gang.links[0]->checkpoints.empty());
}

TEST_F(ShardedRunTest, MoreRanks_ThanTheMicroBatchesOfBefore_ChooseASmallerOne) {
  v1::JobSpec spec = Job("optimizer");
  spec.mutable_batch()->set_micro_batch_size(0);
  const Gang two = Run(spec, 2, "two", 1, nullptr);
  EXPECT_EQ(two.links[0]->run_info.micro_batch_size(), 4);
  const Gang same = Run(spec, 2, "same", 2, &two.links[0]->checkpoints[1]);
  EXPECT_EQ(same.links[0]->steps.back().loss(), two.links[0]->steps.back().loss());
  const Gang four = Run(spec, 4, "four", 2, &two.links[0]->checkpoints[1]);
  EXPECT_EQ(four.links[0]->run_info.micro_batch_size(), 2);
  EXPECT_EQ(four.links[0]->run_info.global_batch_tokens(), 128);
}

// What a rank's plan asks for, with the optimizer divided among all ranks.
int64_t PlannedBytes(const v1::JobSpec& spec, int64_t micro_batch, int ranks) {
  const auto inputs = spec::MakePlanInputs(
      spec, micro_batch, 1, true, ranks, spec::AllowedShardLevels(spec, ranks).front());
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return PlanTraining((*inputs)->options)->arena_bytes();
}

// A rank of fewer holds a larger part of a divided optimizer: the micro-batch of before no longer
// fits, and the global batch is the same all the same.
TEST_F(ShardedRunTest, FewerRanks_WithAnOpenBatch_TakeASmallerMicroBatchOfTheSameGlobalOne) {
  v1::JobSpec spec = Job("optimizer");
  spec.mutable_batch()->set_micro_batch_size(0);
  spec.mutable_batch()->clear_global_batch_tokens();
  spec.mutable_resources()->set_workers(2);
  const auto bytes = [&spec](int ranks) { return PlannedBytes(spec, 8, ranks); };
  ASSERT_GT(bytes(1), bytes(2));
  SetEnv("HEARTH_MEMORY_BYTES", std::to_string(bytes(2)).c_str());
  const Gang two = Run(spec, 2, "two", 1, nullptr);
  const Gang one = Run(spec, 1, "one", 2, &two.links[0]->checkpoints[1]);
  const Gang again = Run(spec, 2, "again", 3, &one.links[0]->checkpoints[0]);
  UnsetEnv("HEARTH_MEMORY_BYTES");
  EXPECT_EQ(two.links[0]->run_info.micro_batch_size(), 8);
  EXPECT_EQ(one.links[0]->run_info.micro_batch_size(), 4);
  EXPECT_EQ(again.links[0]->run_info.micro_batch_size(), 8);
  for (const Gang* gang : {&two, &one, &again}) {
    EXPECT_EQ(gang->links[0]->run_info.global_batch_tokens(), 16 * spec.data().sequence_length());
  }
}

TEST_F(ShardedRunTest, MoreRanks_ThanAnOpenBatchHasSequences_GrowIt) {
  v1::JobSpec spec = Job("off");
  spec.mutable_batch()->set_micro_batch_size(0);
  spec.mutable_batch()->clear_global_batch_tokens();
  spec.mutable_resources()->set_workers(1);
  // The most with which one rank takes one sequence at a time.
  SetEnv("HEARTH_MEMORY_BYTES", std::to_string(PlannedBytes(spec, 2, 1) - 1).c_str());
  const Gang one = Run(spec, 1, "one", 1, nullptr);
  spec.mutable_resources()->set_workers(2);
  const Gang two = Run(spec, 2, "two", 2, &one.links[0]->checkpoints[1]);
  UnsetEnv("HEARTH_MEMORY_BYTES");
  EXPECT_EQ(one.links[0]->run_info.global_batch_tokens(), spec.data().sequence_length());
  EXPECT_EQ(two.links[0]->run_info.micro_batch_size(), 1);
  EXPECT_EQ(two.links[0]->run_info.global_batch_tokens(), 2 * spec.data().sequence_length());
}

}  // namespace
}  // namespace hearth::trainer
