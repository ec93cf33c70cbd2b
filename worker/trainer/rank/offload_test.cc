// Masters, optimizer state and activations in the host's memory: the same bits as on the device,
// whatever lies there, for every optimizer and format of state, recipe and level of recomputation.
#include "common/spec/plan/offload.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/io/faulty_env.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/state_cases.h"
#include "tests/support/trainer/store_cases.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

using spec::HostClasses;
using spec::MemoryTier;
using ::testing::HasSubstr;

// All sets of rows but the empty one.
std::vector<HostClasses> Sets() {
  std::vector<HostClasses> sets;
  const size_t rows = spec::OffloadRows().size();
  for (size_t bits = 1; bits < size_t{1} << rows; ++bits) {
    HostClasses& away = sets.emplace_back();
    for (size_t i = 0; i < rows; ++i) {
      if ((bits >> i & 1) != 0) {
        away.Add(spec::OffloadRows()[i].away);
      }
    }
  }
  return sets;
}

v1::JobSpec With(v1::JobSpec spec, HostClasses away) {
  spec::SetOffload(away, spec);
  return spec;
}

std::string Bytes(const kernels::TensorView& view) {
  return {view.as<char>(), view.bytes()};
}

// What updates change of each rank's pieces, after three steps.
std::vector<std::vector<std::string>> Train(const v1::JobSpec& spec, int ranks) {
  std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
  std::vector<std::vector<std::string>> all(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<TestRank> rank = MakeRank(spec, *comms[static_cast<size_t>(r)]);
      for (int step = 0; step < 3; ++step) {
        const absl::StatusOr<StepResult> result = rank->trainer->Step({});
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->verdict, Verdict::kGood);
      }
      std::vector<std::string>& out = all[static_cast<size_t>(r)];
      for (const StorePiece& piece : rank->engine->parameters().pieces()) {
        out.push_back(Bytes(piece.master));
        out.push_back(Bytes(piece.weight));
        out.push_back(Bytes(piece.blocks));
        for (const kernels::TensorView& state : piece.states) {
          out.push_back(Bytes(state));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return all;
}

class OffloadTest : public testing::TestWithParam<StateCase> {
 protected:
  v1::JobSpec Job() const {
    v1::JobSpec spec = BlockSizedJob(dir_.path(), GetParam().optimizer);
    spec.mutable_model()->set_layers(3);  // two slots, and one layer more
    spec.mutable_optimizer()->set_state(std::string(GetParam().state));
    spec.mutable_optimizer()->set_master(GetParam().master);
    return spec;
  }
  bool has_masters() const { return std::string_view(GetParam().master) != "none"; }
  // Whether anything is there for updates to stream, and anything at all to be put on the host.
  bool Streams(HostClasses away) const {
    return away.Has(spec::BufferClass::kOptimizer) ||
           (has_masters() && away.Has(spec::BufferClass::kMasters));
  }
  bool Applies(HostClasses away) const {
    return Streams(away) || away.Has(spec::BufferClass::kActivations);
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Formats, OffloadTest, testing::ValuesIn(DivisibleStateCases()));

TEST_P(OffloadTest, Steps_GiveTheBitsOfTheDevice) {
  v1::JobSpec spec = Job();
  spec.mutable_train()->set_ema(0.9);
  const auto device = Train(spec, 1);
  for (const HostClasses away : Sets()) {
    if (Applies(away)) {
      EXPECT_TRUE(Train(With(spec, away), 1) == device);
    }
  }
}

TEST_P(OffloadTest, DividedSteps_GiveTheBitsOfTheDevice) {
  v1::JobSpec spec = Job();
  for (const spec::ShardRow& row : spec::ShardRows()) {
    spec.mutable_parallel()->set_shard(std::string(row.name));
    EXPECT_TRUE(Train(With(spec, Sets().back()), 3) == Train(spec, 3)) << row.name;
  }
}

// Weights in blocks are decoded for the update, a window at a time, with their states in a slot.
TEST_P(OffloadTest, StepsOfWeightsInBlocks_GiveTheBitsOfTheDevice) {
  for (const std::string& store : BlockStores()) {
    v1::JobSpec spec = Job();
    spec.mutable_weights()->set_store(store);
    spec.mutable_train()->set_ema(0.9);
    EXPECT_TRUE(Train(With(spec, Sets().back()), 1) == Train(spec, 1)) << store;
    spec.mutable_parallel()->set_shard("weights");
    EXPECT_TRUE(Train(With(spec, Sets().back()), 2) == Train(spec, 2)) << store;
  }
}

TEST_P(OffloadTest, Plan_HasTheirBytesOnTheHost_AndSlotsInTheirPlace) {
  const v1::JobSpec spec = Job();
  const auto engine_of = [](const v1::JobSpec& job) {
    EngineOptions options;
    options.spec = job;
    return *Engine::Create(options);
  };
  const std::unique_ptr<Engine> device = engine_of(spec);
  for (const HostClasses away : Sets()) {
    if (!Applies(away)) {
      continue;
    }
    const std::unique_ptr<Engine> engine = engine_of(With(spec, away));
    const spec::MemoryPlan& plan = engine->plan();
    for (const spec::OffloadRow& row : spec::OffloadRows()) {
      const int64_t all = device->plan().ClassBytes(row.away);
      const int64_t stay = plan.ClassBytes(row.away, MemoryTier::kDevice);
      EXPECT_EQ(plan.ClassBytes(row.away), all) << row.name;
      if (!away.Has(row.away)) {
        EXPECT_EQ(stay, all) << row.name;
      } else if (row.away == spec::BufferClass::kActivations) {
        EXPECT_LT(stay, all) << "two of three layers";
        EXPECT_GT(stay, all / 2);
      } else {
        EXPECT_EQ(stay, 0) << row.name;
      }
    }
    const auto slot = plan.Find("offload.slot.1");
    ASSERT_EQ(slot.ok(), Streams(away)) << slot.status();
    const int64_t host = plan.arena_bytes(MemoryTier::kPinnedHost);
    EXPECT_GT(host, 0);
    if (slot.ok()) {
      EXPECT_GT(host, 2 * (*slot)->bytes) << "else the steps above pass through once";
    }
    EXPECT_LE(plan.arena_bytes(), device->plan().arena_bytes());
  }
}

class OffloadRunTest : public testing::Test {
 protected:
  v1::JobSpec Job() const {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_model()->set_layers(3);
    spec.mutable_precision()->set_recipe("bf16");
    spec.mutable_train()->set_steps(6);
    spec.mutable_train()->set_ema(0.9);
    spec.mutable_checkpoint()->set_every_steps(3);
    return spec;
  }
  // The announcements of a run, from a checkpoint if one is given.
  std::vector<v1::CheckpointAnnouncement> Run(const v1::JobSpec& spec,
                                              const std::string& folder,
                                              const v1::CheckpointAnnouncement* from = nullptr) {
    LocalKeyValueStore store;
    v1::Task task = MakeTask(spec, dir_.path() + "/" + folder);
    if (from != nullptr) {
      ResumeFrom(*from, task);
    }
    FakeLink link(task, store);
    const v1::TrainerExit exit = RunTo(link);
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    return link.checkpoints;
  }
  // All tensors of a checkpoint.
  static std::string TensorsOf(const v1::CheckpointAnnouncement& checkpoint) {
    return *Env::Real().ReadFile(checkpoint.path() + "/model.safetensors") +
           *Env::Real().ReadFile(checkpoint.path() + "/" + std::string(kStateFile));
  }

  TempDir dir_;
};

TEST_F(OffloadRunTest, Checkpoints_AreThoseOfTheDevice_AndEitherResumesTheOther) {
  const v1::JobSpec device = Job();
  const v1::JobSpec host = With(Job(), Sets().back());
  const auto whole = Run(device, "device");
  ASSERT_EQ(whole.size(), 2U);
  const auto away = Run(host, "host");
  ASSERT_EQ(away.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(TensorsOf(away[i]) == TensorsOf(whole[i])) << i;
  }
  EXPECT_TRUE(TensorsOf(Run(host, "r1", &whole[0]).back()) == TensorsOf(whole[1]));
  EXPECT_TRUE(TensorsOf(Run(device, "r2", &away[0]).back()) == TensorsOf(whole[1]));
}

// Whatever layers keep: dropout, evaluations between the steps, layers that are not quantised.
TEST_F(OffloadRunTest, Activations_GiveTheBitsOfTheDevice_InEachRecipeAndLevel) {
  HostClasses activations;
  activations.Add(spec::BufferClass::kActivations);
  v1::JobSpec spec = Job();
  spec.mutable_model()->set_layers(6);
  spec.mutable_model()->set_hidden(32);
  spec.mutable_model()->set_head_dim(8);
  spec.mutable_model()->set_ffn_hidden(64);
  spec.mutable_model()->set_dropout(0.1);
  spec.mutable_train()->set_steps(3);
  spec.mutable_train()->set_eval_every(1);
  for (const char* const recipe : {"bf16", "fp8", "mxfp8"}) {
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_precision()->clear_high_precision_layers();
    if (spec::FindRecipe(recipe)->quantised()) {
      spec.mutable_precision()->mutable_high_precision_layers()->add_layers(2);
    }
    for (const std::string_view level : spec::RecomputeNames()) {
      SCOPED_TRACE(testing::Message() << recipe << ", recompute: " << level);
      spec.set_recompute(std::string(level));
      const std::string folder = std::string(recipe) + "." + std::string(level);
      const auto device = Run(spec, folder + ".device");
      const auto host = Run(With(spec, activations), folder + ".host");
      ASSERT_EQ(device.size(), 1U);
      ASSERT_EQ(host.size(), 1U);
      EXPECT_TRUE(TensorsOf(host[0]) == TensorsOf(device[0]));
    }
  }
}

TEST_F(OffloadRunTest, TooLittleHostMemory_IsRefusedWithTheFigures) {
  for (const HostClasses away : Sets()) {
    EngineOptions options;
    options.spec = With(Job(), away);
    options.host_bytes = 4096;
    const absl::Status status = Engine::Create(options).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    const std::string text(status.message());
    EXPECT_THAT(text, HasSubstr("offload needs "));
    EXPECT_THAT(text, HasSubstr("4.0 KiB is free for it"));
    for (const spec::OffloadRow& row : spec::OffloadRows()) {
      const std::string advice = "offload." + std::string(row.name) + ": false";
      EXPECT_EQ(text.find(advice) != std::string::npos, away.Has(row.away)) << text;
    }
    options.host_bytes = int64_t{1} << 30;
    EXPECT_TRUE(Engine::Create(options).ok());
  }
}

// The real machine, except for its memory.
class LittleMemory : public FaultyEnv {
 public:
  LittleMemory() : FaultyEnv(Env::Real()) {}
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return path == "/proc/meminfo" ? std::string("MemAvailable: 4 kB\n")
                                   : FaultyEnv::ReadFile(path);
  }
};

TEST_F(OffloadRunTest, RunOnAHostWithTooLittleMemory_EndsWithTheFigures) {
  LittleMemory env;
  for (const bool away : {true, false}) {
    LocalKeyValueStore store;
    FakeLink link(MakeTask(away ? With(Job(), Sets().back()) : Job(), dir_.path() + "/run"), store);
    RankOptions options;
    options.link = &link;
    options.env = &env;
    const v1::TrainerExit exit = RunRank(options);
    EXPECT_EQ(exit.reason(), away ? v1::EXIT_REASON_DEVICE : v1::EXIT_REASON_FINISHED)
        << exit.message();
    EXPECT_EQ(exit.message().find("4.0 KiB is free for it") != std::string::npos, away);
  }
}

}  // namespace
}  // namespace hearth::trainer
