// Weights in blocks (weights.store): updates, passes, checkpoints and plans, for every format that
// can be trained and every optimizer.
#include "worker/trainer/model/stored_weights.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/weights/weight_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/weight_blocks/weight_blocks.h"
#include "tests/support/trainer/store_cases.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/trained_bits.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

using kernels::TensorView;

std::unique_ptr<Engine> MakeEngine(const v1::JobSpec& spec) {
  EngineOptions options;
  options.spec = spec;
  options.micro_batch = spec.batch().micro_batch_size();
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Initialise().ok());
  return *std::move(engine);
}

// The parameter's blocks in fp32.
std::vector<float> Decoded(const ParameterStore& store, int i) {
  const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
  std::vector<float> values(static_cast<size_t>(parameter.elements()));
  kernels::DecodeWeightsArgs args;
  args.codec = parameter.store;
  args.blocks = store.blocks(i);
  args.y = kernels::View(values.data(), {parameter.elements()});
  EXPECT_TRUE(kernels::DecodeWeights(kernels::Exec(), args).ok());
  return values;
}

class StoredWeightsTest : public testing::TestWithParam<StoreCase> {
 protected:
  v1::JobSpec Job() const {
    v1::JobSpec spec = BlockSizedJob(dir_.path(), GetParam().optimizer);
    spec.mutable_weights()->set_store(GetParam().store);
    return spec;
  }

  // All announcements of six steps with a checkpoint every third, from one if it is given.
  static std::vector<v1::CheckpointAnnouncement> Run(const v1::JobSpec& job,
                                                     const std::string& folder,
                                                     const v1::CheckpointAnnouncement* from,
                                                     int64_t* steps = nullptr) {
    LocalKeyValueStore store;
    v1::Task task = MakeTask(job, folder);
    if (from != nullptr) {
      ResumeFrom(*from, task);
    }
    FakeLink link(task, store);
    const v1::TrainerExit exit = RunTo(link);
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    if (steps != nullptr) {
      *steps = static_cast<int64_t>(link.steps.size());
    }
    return link.checkpoints;
  }
  static std::string TensorsOf(const v1::CheckpointAnnouncement& checkpoint) {
    return *Env::Real().ReadFile(checkpoint.path() + "/model.safetensors") +
           *Env::Real().ReadFile(checkpoint.path() + "/" + std::string(kStateFile));
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Formats, StoredWeightsTest, testing::ValuesIn(StoreCases()));

TEST_P(StoredWeightsTest, Plan_HasTheirBytes_OneSlot_AndNoMasters) {
  const v1::JobSpec job = Job();
  const std::unique_ptr<Engine> engine = MakeEngine(job);
  const ParameterStore& store = engine->parameters();
  ASSERT_TRUE(store.weights_stored());
  int64_t blocks = 0;
  int64_t others = 0;
  std::vector<int64_t> layers(static_cast<size_t>(engine->shape().layers), 0);
  for (int i = 0; i < store.size(); ++i) {
    const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
    const int64_t aligned = (parameter.elements() + spec::kTensorAlignElements - 1) /
                            spec::kTensorAlignElements * spec::kTensorAlignElements;
    if (!parameter.stored()) {
      others += aligned;
      EXPECT_TRUE(store.blocks(i).empty()) << parameter.name;
      continue;
    }
    EXPECT_TRUE(spec::IsHiddenMatrix(parameter)) << parameter.name;
    EXPECT_EQ(static_cast<int64_t>(store.blocks(i).bytes()), parameter.stored_bytes());
    blocks += spec::StoredRow(store.table()).Bytes(aligned);
    layers[static_cast<size_t>(parameter.layer)] += aligned;
  }
  const spec::MemoryPlan& plan = engine->plan();
  const auto bytes = [&plan](const char* name) { return (*plan.Find(name))->bytes; };
  EXPECT_EQ(bytes("parameters.blocks"), blocks);
  EXPECT_EQ(bytes("parameters.slot.1"), 4 * layers[0]) << "a CPU holds bf16 in four bytes";
  EXPECT_FALSE(plan.Find("parameters.slot.0").ok());
  EXPECT_EQ(bytes("parameters"), 4 * others);
  EXPECT_EQ(bytes("masters"), 4 * others);
  EXPECT_EQ(bytes("parameters.decoded"), 4 * spec::DecodedElements(store.table()));
  const std::unique_ptr<Engine> plain = [&] {
    v1::JobSpec bf16 = job;
    bf16.clear_weights();
    return MakeEngine(bf16);
  }();
  EXPECT_FALSE(plain->parameters().weights_stored());
  EXPECT_LT(plan.arena_bytes(), plain->plan().arena_bytes());
}

TEST_P(StoredWeightsTest, Blocks_HoldTheInitialWeights_RoundedToNearest) {
  const std::unique_ptr<Engine> engine = MakeEngine(Job());
  v1::JobSpec bf16 = Job();
  bf16.clear_weights();
  const std::unique_ptr<Engine> plain = MakeEngine(bf16);
  const ParameterStore& store = engine->parameters();
  for (int i = 0; i < store.size(); ++i) {
    const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
    if (!parameter.stored()) {
      EXPECT_EQ(Bytes(store.weight(i)), Bytes(plain->parameters().weight(i))) << parameter.name;
      continue;
    }
    const std::vector<float> values = Decoded(store, i);
    const float* master = plain->parameters().master(i).as<float>();
    double error = 0;
    double norm = 0;
    for (size_t e = 0; e < values.size(); ++e) {
      error += std::pow(double{values[e]} - double{master[e]}, 2);
      norm += std::pow(double{master[e]}, 2);
    }
    EXPECT_LT(std::sqrt(error / norm), GetParam().store == "int8" ? 0.008 : 0.14) << parameter.name;
    EXPECT_GT(error, 0) << parameter.name;
  }
}

// What a pass reads is the blocks' values, rounded to the recipe's format.
TEST_P(StoredWeightsTest, Source_BringsAUnitDecoded) {
  const std::unique_ptr<Engine> engine = MakeEngine(Job());
  const ParameterStore& store = engine->parameters();
  StoredWeights source(store);
  ASSERT_EQ(source.units(), engine->shape().layers + 1) << "the head is tied to the embedding";
  int seen = 0;
  for (int unit = 0; unit < source.units(); ++unit) {
    ASSERT_TRUE(source.Announce(engine->exec(), unit).ok());
    for (const int i : store.units().units[static_cast<size_t>(unit)].parameters) {
      ++seen;
      std::vector<float> values = Decoded(store, i);
      for (float& value : values) {
        value = formats::RoundBf16(value);
      }
      EXPECT_EQ(std::memcmp(values.data(), store.weight(i).data, store.weight(i).bytes()), 0);
    }
  }
  EXPECT_GT(seen, 0);
}

class AdamWStoredWeightsTest : public StoredWeightsTest {
 protected:
  static constexpr int kStep = 3;
  static constexpr float kScale = 0.5F;

  // The blocks of parameter i after its first update: what AdamW makes of fp32 masters with their
  // values, encoded again.
  static std::string Updated(Engine& engine, int i) {
    const ParameterStore& store = engine.parameters();
    const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
    std::vector<float> master = Decoded(store, i);
    std::vector<float> m(master.size());
    std::vector<float> v(master.size());
    kernels::AdamWTensor tensor;
    tensor.master = kernels::View(master.data(), {parameter.elements()});
    tensor.m = kernels::View(m.data(), {parameter.elements()});
    tensor.v = kernels::View(v.data(), {parameter.elements()});
    tensor.grad = store.gradient(i);
    tensor.weight_decay = 0.1;
    kernels::AdamWArgs adamw;
    adamw.tensors = absl::MakeConstSpan(&tensor, 1);
    adamw.inputs = engine.step_inputs();
    adamw.grad_scale = &kScale;
    EXPECT_TRUE(kernels::AdamWStep(kernels::Exec(), adamw).ok());
    std::string blocks = Bytes(store.blocks(i));
    kernels::EncodeWeightsArgs encode;
    encode.codec = parameter.store;
    encode.x = tensor.master;
    encode.blocks = TensorView(static_cast<void*>(blocks.data()), kernels::DType::kU8,
                               {static_cast<int64_t>(blocks.size())});
    encode.keep = true;
    encode.seed = static_cast<uint64_t>(engine.options().spec.train().seed());
    encode.step = kStep;
    encode.index = static_cast<uint32_t>(i);
    EXPECT_TRUE(kernels::EncodeWeights(kernels::Exec(), encode).ok());
    return blocks;
  }
};
INSTANTIATE_TEST_SUITE_P(Formats,
                         AdamWStoredWeightsTest,
                         testing::Values(StoreCase{"adamw", "int8"},
                                         StoreCase{"adamw", "q4_0"},
                                         StoreCase{"adamw", "nvfp4"}));

TEST_P(AdamWStoredWeightsTest, Update_IsThatOfMasters_EncodedAgain) {
  const std::unique_ptr<Engine> engine = MakeEngine(Job());
  const ParameterStore& store = engine->parameters();
  engine->step_inputs()->learning_rate = 1e-3;
  engine->step_inputs()->step = kStep;
  engine->optimizer().Scalars(kStep, absl::MakeSpan(engine->step_inputs()->optimizer));
  std::vector<std::string> before;
  std::vector<std::string> expected;
  for (int i = 0; i < store.size(); ++i) {
    float* const gradient = store.gradient(i).as<float>();
    for (int64_t e = 0; e < store.gradient(i).numel(); ++e) {
      gradient[e] = std::sin(static_cast<float>(i + 3 * e));
    }
    const bool stored = store.table()[static_cast<size_t>(i)].stored();
    before.push_back(Bytes(store.blocks(i)));
    expected.push_back(stored ? Updated(*engine, i) : "");
    EXPECT_EQ(before.back() == expected.back(), !stored) << "an update that changes nothing";
  }
  UpdateArgs args;
  args.inputs = engine->step_inputs();
  args.grad_scale = &kScale;
  int32_t skip = 1;
  args.skip = &skip;
  for (const std::vector<std::string>* const blocks : {&before, &expected}) {
    ASSERT_TRUE(engine->optimizer().Step(engine->exec(), args).ok());
    for (int i = 0; i < store.size(); ++i) {
      EXPECT_EQ(Bytes(store.blocks(i)), (*blocks)[static_cast<size_t>(i)])
          << store.table()[static_cast<size_t>(i)].name << (skip != 0 ? ", refused" : "");
    }
    skip = 0;
  }
}

// Every rank rounds with the same numbers: all have the same blocks, and the losses are those of
// one rank up to the order of sums.
TEST_P(StoredWeightsTest, Ranks_HaveTheSameBlocks) {
  const v1::JobSpec job = Job();
  constexpr int kSteps = 4;
  const auto train = [&](int ranks, std::vector<std::vector<std::string>>& blocks) {
    const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(ranks);
    std::vector<double> losses;
    std::vector<std::thread> threads;
    blocks.resize(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        const std::unique_ptr<TestRank> rank = MakeRank(job, *comms[static_cast<size_t>(r)]);
        for (int step = 0; step < kSteps; ++step) {
          const absl::StatusOr<StepResult> result = rank->trainer->Step({});
          ASSERT_TRUE(result.ok()) << result.status();
          ASSERT_EQ(result->verdict, Verdict::kGood);
          if (r == 0) {
            losses.push_back(result->facts.loss);
          }
        }
        const ParameterStore& store = rank->engine->parameters();
        for (int i = 0; i < store.size(); ++i) {
          blocks[static_cast<size_t>(r)].push_back(Bytes(store.blocks(i)));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return losses;
  };
  std::vector<std::vector<std::string>> one;
  std::vector<std::vector<std::string>> two;
  const std::vector<double> whole = train(1, one);
  const std::vector<double> shared = train(2, two);
  EXPECT_EQ(two[0], two[1]);
  ASSERT_EQ(whole.size(), shared.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(whole[i], shared[i], 0.02) << i;
  }
}

TEST_P(StoredWeightsTest, Resume_GoesOnWithTheSameBits) {
  v1::JobSpec job = Job();
  job.mutable_train()->set_steps(6);
  job.mutable_train()->set_ema(0.9);
  job.mutable_checkpoint()->set_every_steps(3);
  const auto whole = Run(job, dir_.path() + "/whole", nullptr);
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_NE(TensorsOf(whole[0]), TensorsOf(whole[1]));
  int64_t steps = 0;
  const auto resumed = Run(job, dir_.path() + "/resumed", &whole[0], &steps);
  EXPECT_EQ(steps, 3);
  ASSERT_FALSE(resumed.empty());
  EXPECT_EQ(TensorsOf(resumed.back()), TensorsOf(whole[1]));
}

// The state file has the blocks as they are, and no masters for them.
TEST_P(StoredWeightsTest, Checkpoint_HasTheBlocks) {
  v1::JobSpec job = Job();
  job.mutable_train()->set_steps(3);
  job.mutable_checkpoint()->set_every_steps(3);
  const auto written = Run(job, dir_.path() + "/c", nullptr);
  ASSERT_EQ(written.size(), 1U);
  const auto state =
      SafetensorsFile::Open(Env::Real(), written[0].path() + "/" + std::string(kStateFile));
  ASSERT_TRUE(state.ok()) << state.status();
  const std::unique_ptr<Engine> engine = MakeEngine(job);
  int found = 0;
  for (const spec::Parameter& parameter : engine->table()) {
    const std::string master = "master." + parameter.name;
    EXPECT_EQ((*state)->Find(master) == nullptr, parameter.stored()) << master;
    if (parameter.stored()) {
      const std::string name =
          std::string(formats::RowOf(parameter.store).name) + "." + parameter.name;
      const auto* const tensor = (*state)->Find(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->dtype, TensorDType::kU8);
      EXPECT_EQ(tensor->bytes(), parameter.stored_bytes());
      ++found;
    }
  }
  EXPECT_GT(found, 0);
}

TEST_P(StoredWeightsTest, Runs_Learn_AlsoInFp8_AndWithoutMasters) {
  for (const char* const recipe : {"bf16", "fp8", "fp8_current"}) {
    v1::JobSpec job = Job();
    job.mutable_precision()->set_recipe(recipe);
    job.mutable_precision()->mutable_high_precision_layers()->set_last(0);
    job.mutable_optimizer()->set_master("none");
    job.mutable_train()->set_steps(40);
    LocalKeyValueStore store;
    FakeLink link(MakeTask(job, dir_.path() + "/" + recipe), store);
    const v1::TrainerExit exit = RunTo(link);
    ASSERT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    ASSERT_EQ(link.steps.size(), 40U);
    EXPECT_LT(link.steps.back().loss(), 0.9 * link.steps.front().loss()) << recipe;
  }
}

}  // namespace
}  // namespace hearth::trainer
