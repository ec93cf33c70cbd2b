// The running average of the weights over a rank's life: what it is, that it stays exact over a
// resume, the same on divided optimizers, and that others can read it.
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/fault/fault.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/weights/export.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/rank/evaluation/forward_model.h"

namespace hearth::trainer {
namespace {

using weights::WeightChoice;

constexpr double kDecay = 0.8;

v1::JobSpec AverageJob(const TempDir& dir, std::string_view family = "qwen3") {
  v1::JobSpec spec = SmallJob(dir.path(), family);
  spec.mutable_precision()->set_recipe("bf16");
  spec.mutable_train()->set_steps(6);
  spec.mutable_train()->set_ema(kDecay);
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.mutable_checkpoint()->set_keep_last(1000);
  return spec;
}

// Tensors of state/tensors.safetensors whose names begin with `kind`, by the rest of the name.
std::map<std::string, std::vector<float>> StateOf(const std::string& checkpoint,
                                                  const std::string& kind) {
  const auto file = *SafetensorsFile::Open(Env::Real(), checkpoint + "/state/tensors.safetensors");
  std::map<std::string, std::vector<float>> out;
  for (const TensorView& tensor : file->tensors()) {
    if (tensor.name.starts_with(kind + ".")) {
      std::vector<float>& values = out[tensor.name.substr(kind.size() + 1)];
      values.resize(static_cast<size_t>(tensor.elements()));
      weights::ReadElements(tensor, 0, absl::MakeSpan(values));
    }
  }
  return out;
}

// All weights of a folder, in the order of the table.
std::vector<float> Weights(const std::string& folder,
                           const v1::JobSpec& spec,
                           WeightChoice choice) {
  const auto plan = *spec::MakePlanInputs(spec, 1, 1, /*training=*/false);
  std::vector<std::vector<float>> held;
  std::vector<float*> pointers;
  held.reserve(plan->table.size());
  for (const spec::Parameter& p : plan->table) {
    held.emplace_back(static_cast<size_t>(p.elements()));
    pointers.push_back(held.back().data());
  }
  const absl::Status loaded = LoadHfWeights(Env::Real(), folder, plan->table, pointers, choice);
  EXPECT_TRUE(loaded.ok()) << loaded;
  std::vector<float> all;
  for (const std::vector<float>& values : held) {
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Also behind a step that the guard refused and had done again.
TEST(AverageRunTest, EachCheckpoint_HasTheWeightedMeanOfTheMastersSoFar) {
  const TempDir dir;
  v1::JobSpec spec = AverageJob(dir);
  spec.mutable_precision()->set_recipe("fp8");
  spec.mutable_precision()->clear_fallback();
  spec.mutable_precision()->add_fallback("bf16");
  spec.mutable_model()->set_head_dim(8);  // FP8 wants multiples of 16
  spec.mutable_model()->set_ffn_hidden(32);
  ASSERT_TRUE(fault::Configure("trainer.nan_gradient=error@3").ok());
  LocalKeyValueStore store;
  FakeLink link(MakeTask(spec, dir.path() + "/c"), store);
  const v1::TrainerExit exit = RunTo(link);
  ASSERT_TRUE(fault::Configure("").ok());
  ASSERT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(link.steps.back().guard().redone_steps(), 1);
  ASSERT_EQ(link.checkpoints.size(), 6U);
  std::map<std::string, std::vector<double>> sums;
  double weight = 0;
  for (const v1::CheckpointAnnouncement& checkpoint : link.checkpoints) {
    weight = weight * kDecay + 1;
    const auto average = StateOf(checkpoint.path(), "ema");
    const auto masters = StateOf(checkpoint.path(), "master");
    ASSERT_EQ(average.size(), masters.size());
    for (const auto& [name, master] : masters) {
      std::vector<double>& sum = sums[name];
      sum.resize(master.size());
      ASSERT_EQ(average.at(name).size(), master.size()) << name;
      for (size_t i = 0; i < master.size(); ++i) {
        sum[i] = sum[i] * kDecay + static_cast<double>(master[i]);
        ASSERT_NEAR(average.at(name)[i], sum[i] / weight, 1e-6) << name << " " << i;
      }
    }
  }
}

TEST(AverageRunTest, PausedAndResumed_EqualsNeverStopped) {
  const TempDir dir;
  const v1::JobSpec spec = AverageJob(dir);
  LocalKeyValueStore store;
  FakeLink whole(MakeTask(spec, dir.path() + "/whole"), store);
  ASSERT_EQ(RunTo(whole).reason(), v1::EXIT_REASON_FINISHED);
  v1::Task task = MakeTask(spec, dir.path() + "/resumed");
  ASSERT_EQ(whole.checkpoints[2].step(), 3);
  ResumeFrom(whole.checkpoints[2], task);
  FakeLink resumed(task, store);
  ASSERT_EQ(RunTo(resumed).reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(StateOf(resumed.checkpoints.back().path(), "ema"),
            StateOf(whole.checkpoints.back().path(), "ema"));
}

TEST(AverageRunTest, DividedOptimizer_HasTheSameAverageInParts) {
  const TempDir dir;
  v1::JobSpec spec = AverageJob(dir);
  spec.mutable_model()->set_vocab(131);  // padded
  LocalKeyValueStore store;
  std::vector<std::string> folders;
  for (const char* const divided : {"off", "optimizer"}) {
    spec.mutable_parallel()->set_shard(divided);
    const std::string root = dir.path() + "/" + divided;
    LocalKeyValueStore keys;
    FakeLink leader(MakeTask(spec, root, 0, 2), keys);
    FakeLink other(MakeTask(spec, root, 1, 2), keys);
    std::thread thread([&] { EXPECT_EQ(RunTo(other).reason(), v1::EXIT_REASON_FINISHED); });
    const v1::TrainerExit exit = RunTo(leader);
    thread.join();
    ASSERT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    folders.push_back(leader.checkpoints.back().path());
  }
  EXPECT_TRUE(Env::Real().Exists(folders[1] + "/state/optimizer-00001-of-00002.safetensors"));
  EXPECT_EQ(Weights(folders[1], spec, WeightChoice::kEma),
            Weights(folders[0], spec, WeightChoice::kEma));
  EXPECT_NE(Weights(folders[1], spec, WeightChoice::kEma),
            Weights(folders[1], spec, WeightChoice::kStep));
}

// GPT-2's folder keeps weights transposed.
TEST(AverageRunTest, Exported_IsAFolderWithTheAverageAsItsWeights) {
  for (const char* const family : {"qwen3", "gpt2"}) {
    SCOPED_TRACE(family);
    const TempDir dir;
    const v1::JobSpec spec = AverageJob(dir, family);
    LocalKeyValueStore store;
    FakeLink link(MakeTask(spec, dir.path() + "/c"), store);
    ASSERT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED);
    const std::string folder = link.checkpoints.back().path();
    weights::ExportOptions options;
    options.weights = WeightChoice::kEma;
    options.dtype = &formats::kStoredF32;
    options.out = dir.path() + "/exported";
    const auto done =
        weights::ExportModel(Env::Real(), FileVerifier("", 1), folder, weights::kHfExport, options);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(Weights(options.out, spec, WeightChoice::kStep),
              Weights(folder, spec, WeightChoice::kEma));
    ForwardModelOptions forward;
    forward.path = folder;
    forward.weights = WeightChoice::kEma;
    const auto model = OpenForwardModel(forward);
    ASSERT_TRUE(model.ok()) << model.status();
    const kernels::TensorView first = model->engine->parameters().weight(0);
    EXPECT_EQ(first.as<float>()[0], Weights(folder, spec, WeightChoice::kEma)[0]);
  }
}

TEST(AverageRunTest, CheckpointWithoutOne_IsRefusedWithTheReason) {
  const TempDir dir;
  v1::JobSpec spec = AverageJob(dir);
  spec.mutable_train()->set_ema(0);
  LocalKeyValueStore store;
  FakeLink link(MakeTask(spec, dir.path() + "/c"), store);
  ASSERT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED);
  const std::string folder = link.checkpoints.back().path();
  const auto open = [&] {
    return weights::OpenModelFolder(Env::Real(), folder, WeightChoice::kEma).status();
  };
  EXPECT_EQ(open().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(open().message()), testing::HasSubstr("train.ema"));
  ASSERT_TRUE(Env::Real().RemoveAll(folder + "/state").ok());
  EXPECT_THAT(std::string(open().message()), testing::HasSubstr("--state"));
}

TEST(AverageRunTest, Plan_HasExactlyOneMoreFp32TensorOfEveryParameter) {
  const TempDir dir;
  for (const int shards : {1, 2}) {
    int64_t bytes[2] = {};
    int64_t owned = 0;
    for (const bool average : {false, true}) {
      v1::JobSpec spec = AverageJob(dir);
      spec.mutable_train()->set_ema(average ? kDecay : 0);
      const auto plan = *spec::MakePlanInputs(spec, 1, 1, /*training=*/true, shards,
                                              spec::ShardLevel::kOptimizer);
      bytes[average] = spec::PlanTraining(plan->options)->arena_bytes();
      owned = spec::TensorOffsets(plan->table, shards).back() / shards;
    }
    EXPECT_EQ(bytes[1] - bytes[0], owned * 4) << shards;
  }
}

}  // namespace
}  // namespace hearth::trainer
