// Updates bucket by bucket, for every optimizer, format of state and level of division. Those that
// are made while backward goes on (optimizer.fused) have the bits of updates behind backward
// wherever no clip acts; those with gradients that waited in E4M3 (gradients.store) the bits of an
// update with rounded gradients.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault/fault.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/gradient_parts/gradient_parts.h"
#include "nlohmann/json.hpp"
#include "tests/support/trainer/state_cases.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/trained_bits.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/step/program.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

v1::JobSpec Fused(v1::JobSpec spec, bool fused = true) {
  spec.mutable_optimizer()->set_fused(fused);
  return spec;
}

// Its matrices have rows of whole blocks.
v1::JobSpec Stored(v1::JobSpec spec, const char* store) {
  spec.mutable_model()->set_hidden(64);
  spec.mutable_model()->set_head_dim(16);
  spec.mutable_model()->set_ffn_hidden(96);
  spec.mutable_weights()->set_store(store);
  return spec;
}

v1::JobSpec Coded(v1::JobSpec spec) {
  spec.mutable_gradients()->set_store("fp8");
  return spec;
}

// Through E4M3 in blocks and back, tensor by tensor.
void RoundGradients(const Engine& engine) {
  for (const StorePiece& piece : engine.parameters().pieces()) {
    // Whole blocks: what lies behind a tensor's end is zeros.
    const int64_t blocks =
        (piece.place.elements + formats::kReduceBlock - 1) / formats::kReduceBlock;
    const int64_t n = blocks * formats::kReduceBlock;
    const kernels::TensorView gradient(piece.gradient.data, piece.gradient.dtype, {n});
    std::vector<uint8_t> codes(static_cast<size_t>(n));
    std::vector<uint8_t> scales(static_cast<size_t>(blocks));
    kernels::EncodePartsArgs encode;
    encode.x = gradient;
    encode.codes =
        kernels::TensorView(static_cast<void*>(codes.data()), kernels::DType::kE4M3, {n});
    encode.scales =
        kernels::TensorView(static_cast<void*>(scales.data()), kernels::DType::kE8M0, {blocks});
    ASSERT_TRUE(kernels::EncodeParts(engine.exec(), encode).ok());
    kernels::SumPartsArgs decode;
    decode.codes =
        kernels::TensorView(static_cast<void*>(codes.data()), kernels::DType::kE4M3, {1, n});
    decode.scales =
        kernels::TensorView(static_cast<void*>(scales.data()), kernels::DType::kE8M0, {1, blocks});
    decode.y = gradient;
    ASSERT_TRUE(kernels::SumParts(engine.exec(), decode).ok());
  }
}

class ByBucketTest : public testing::TestWithParam<StateCase> {
 protected:
  // Matrices of 4096 elements and more, so that formats in blocks take them.
  v1::JobSpec Job() const {
    v1::JobSpec spec = BlockSizedJob(dir_.path(), GetParam().optimizer);
    spec.mutable_optimizer()->set_state(std::string(GetParam().state));
    spec.mutable_optimizer()->set_master(GetParam().master);
    spec.mutable_optimizer()->set_grad_clip(0);
    return spec;
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Formats, ByBucketTest, testing::ValuesIn(StateCases()));

TEST_P(ByBucketTest, FusedSteps_GiveTheBitsOfUpdatesBehindBackward) {
  v1::JobSpec spec = Job();
  spec.mutable_train()->set_ema(0.9);
  const auto behind = Train(spec, 1);
  EXPECT_TRUE(Train(Fused(spec), 1) == behind);
  // Through the host's memory, and with a clip that never acts.
  if (std::string_view(GetParam().master) != "none") {
    spec.mutable_offload()->set_masters(true);
  }
  spec.mutable_offload()->set_optimizer(!GetParam().needs_whole);
  spec.mutable_optimizer()->set_grad_clip(1e6);
  EXPECT_TRUE(Train(Fused(spec), 1) == behind);
}

// Two ranks: a sum of two does not depend on their order.
TEST_P(ByBucketTest, FusedDividedSteps_GiveTheBitsOfUpdatesBehindBackward) {
  v1::JobSpec spec = Job();
  for (const spec::ShardRow& row : spec::ShardRows()) {
    if (row.optimizer && GetParam().needs_whole) {
      continue;
    }
    spec.mutable_parallel()->set_shard(std::string(row.name));
    EXPECT_TRUE(Train(Fused(spec), 2) == Train(spec, 2)) << row.name;
  }
}

// Each layer is decoded into the one slot of all. An update in backward leaves that alone, and
// tells the magnitudes that the next step's scales are made of.
TEST_P(ByBucketTest, FusedSteps_OfWeightsInBlocks_GiveTheBitsOfUpdatesBehindBackward) {
  for (const char* const recipe : {"bf16", "fp8"}) {
    v1::JobSpec spec = Stored(Job(), "int8");
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_precision()->mutable_high_precision_layers()->set_first(0);
    spec.mutable_precision()->mutable_high_precision_layers()->set_last(0);
    spec.mutable_train()->set_ema(0.9);
    for (const int ranks : {1, 2}) {
      std::vector<double> losses_behind;
      std::vector<double> losses;
      const auto behind = Train(spec, ranks, &losses_behind);
      EXPECT_TRUE(Train(Fused(spec), ranks, &losses) == behind) << recipe << ", " << ranks;
      v1::JobSpec away = Fused(spec);
      away.mutable_offload()->set_optimizer(!GetParam().needs_whole);
      EXPECT_TRUE(Train(away, ranks) == behind) << "through the host's memory, " << recipe;
      EXPECT_EQ(losses, losses_behind) << recipe << ", " << ranks;
      EXPECT_NE(losses.front(), losses.back()) << "steps that change nothing";
      EXPECT_TRUE(std::any_of(behind.begin(), behind.end(), [](const auto& entry) {
        return entry.first.find("blocks") != std::string::npos;
      }));
    }
  }
}

// Blocks of a tensor are the same whatever a rank has of it. Muon adds zeros to matrices of other
// ranks, which may change the sign of a zero: levels are compared with one another without it.
TEST_P(ByBucketTest, CodedSteps_GiveTheSameBitsAtEachLevel) {
  v1::JobSpec spec = Coded(Job());
  if (GetParam().optimizer == "muon") {
    spec.mutable_parallel()->set_shard("weights");
    EXPECT_FALSE(Train(spec, 2).empty());
    return;
  }
  spec.mutable_parallel()->set_shard("off");
  const auto off = Train(spec, 2);
  for (const spec::ShardRow& row : spec::ShardRows()) {
    spec.mutable_parallel()->set_shard(std::string(row.name));
    EXPECT_TRUE(Train(spec, 2) == off) << row.name;
  }
}

TEST_P(ByBucketTest, CodedPlan_HasAByteForEachElementAndSlots) {
  EngineOptions options;
  options.spec = OneEach(Coded(Job()), 1);
  options.micro_batch = options.spec.batch().micro_batch_size();
  const std::unique_ptr<Engine> engine = *Engine::Create(options);
  const spec::MemoryPlan& plan = engine->plan();
  EXPECT_FALSE(plan.Find("gradients").ok());
  const int64_t elements = spec::TensorOffsets(engine->table()).back();
  ASSERT_TRUE(plan.Find("gradients.codes").ok());
  EXPECT_EQ((*plan.Find("gradients.codes"))->bytes, elements);
  EXPECT_EQ((*plan.Find("gradients.codes.scales"))->bytes, elements / 128);
  EXPECT_TRUE(plan.Find("gradients.slot.0").ok());
}

// Slots begin as anything: what of them backward does not write must not reach an update.
TEST_P(ByBucketTest, FusedPlan_HasSlotsInPlaceOfGradients) {
  const std::unique_ptr<Collective> solo = NewSoloCollective();
  const std::unique_ptr<TestRank> behind = MakeRank(OneEach(Job(), 1), *solo);
  const std::unique_ptr<TestRank> fused = MakeRank(OneEach(Fused(Job()), 1), *solo);
  const spec::MemoryPlan& plan = fused->engine->plan();
  EXPECT_FALSE(plan.Find("gradients").ok());
  ASSERT_TRUE(plan.Find("gradients.slot.0").ok());
  EXPECT_LT(plan.ClassBytes(spec::BufferClass::kGradients),
            behind->engine->plan().ClassBytes(spec::BufferClass::kGradients));
  EXPECT_LT(plan.arena_bytes(), behind->engine->plan().arena_bytes());
  const ParameterStore& p = fused->engine->parameters();
  EXPECT_TRUE(p.gradients_in_slots());
  EXPECT_FALSE(p.gradients_divided());
  EXPECT_TRUE(p.flat_gradients().empty());
  for (const spec::GradientBucket& bucket : fused->engine->gradient_buckets()) {
    const kernels::TensorView slot = p.GradientRange(bucket.begin, bucket.elements());
    std::fill_n(slot.as<float>(), slot.numel(), std::numeric_limits<float>::quiet_NaN());
  }
  const absl::StatusOr<StepResult> result = fused->trainer->Step({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->facts.nonfinite_gradients, 0);
  ASSERT_TRUE(behind->trainer->Step({}).ok());
  EXPECT_TRUE(fused->Weights() == behind->Weights());
}

// One step of a program, launched by hand.
class OneStepTest : public testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<TestRank> made;
    std::unique_ptr<StepProgram> program;
  };
  struct Outcome {
    kernels::StepState state;
    std::vector<float> weights;
  };

  v1::JobSpec Job() const {
    v1::JobSpec spec = OneEach(SmallJob(dir_.path(), "llama"), 1);
    spec.mutable_model()->set_vocab(131);
    spec.mutable_model()->set_tied(false);
    return spec;
  }
  Rank Make(bool fused) const { return Make(Fused(Job(), fused)); }
  Rank Make(const v1::JobSpec& spec) const {
    Rank rank;
    rank.made = MakeRank(spec, *solo_);
    const double tokens = static_cast<double>(rank.made->batch.global_tokens());
    rank.program = std::make_unique<StepProgram>(*rank.made->engine, solo_.get(), 1 / tokens, 1);
    return rank;
  }
  kernels::StepInputs Inputs(const Rank& rank, int64_t step) const {
    kernels::StepInputs inputs;
    inputs.loss_limit = inputs.grad_norm_limit = std::numeric_limits<double>::infinity();
    inputs.tokens = static_cast<double>(rank.made->batch.global_tokens());
    inputs.learning_rate = 1e-2;
    inputs.step = step;
    rank.made->engine->optimizer().Scalars(step, absl::MakeSpan(inputs.optimizer));
    return inputs;
  }
  static Outcome Step(Rank& rank,
                      const kernels::StepInputs& inputs,
                      bool spoil = false,
                      bool rounded = false) {
    Engine& engine = *rank.made->engine;
    StageRandomBatch(engine);
    *engine.step_inputs() = inputs;
    MicroBatchExtra extra;
    extra.spoil_gradient = spoil;
    EXPECT_TRUE(rank.program->MicroBatch(rank.program->Kind(0, {}), Pass{}, extra).ok());
    if (rounded) {
      RoundGradients(engine);
    }
    EXPECT_TRUE(rank.program->Update(false).ok());
    return {*engine.step_state(), rank.made->Weights()};
  }

  TempDir dir_;
  std::unique_ptr<Collective> solo_ = NewSoloCollective();
};

TEST_F(OneStepTest, Clip_IsByTheNormOfTheStepBefore) {
  Rank behind = Make(false);
  Rank fused = Make(true);
  kernels::StepInputs inputs = Inputs(fused, 1);
  inputs.max_norm = 1e-2;
  const Outcome clipped = Step(behind, inputs);
  ASSERT_GT(clipped.state.grad_norm, inputs.max_norm);
  // That of a checkpoint is here the norm that the step itself has.
  inputs.norm_before = clipped.state.grad_norm;
  const Outcome same = Step(fused, inputs);
  EXPECT_TRUE(same.weights == clipped.weights);
  EXPECT_NEAR(same.state.grad_norm, clipped.state.grad_norm, 1e-9 * clipped.state.grad_norm);
  EXPECT_EQ(same.state.last_norm, same.state.grad_norm);
  EXPECT_EQ(same.state.verdict, 0);
  // Without any the first step is not clipped.
  Rank first = Make(true);
  Rank free = Make(false);
  inputs.norm_before = 0;
  kernels::StepInputs no_clip = inputs;
  no_clip.max_norm = 0;
  EXPECT_TRUE(Step(first, inputs).weights == Step(free, no_clip).weights);
  // The second is, by the first one's norm.
  kernels::StepInputs second = Inputs(fused, 2);
  second.max_norm = inputs.max_norm;
  kernels::StepInputs second_free = second;
  second_free.max_norm = 0;
  EXPECT_FALSE(Step(first, second).weights == Step(free, second_free).weights);
}

TEST_F(OneStepTest, LossAboveItsLimit_RefusesTheWholeStep) {
  Rank rank = Make(true);
  const std::vector<float> before = rank.made->Weights();
  kernels::StepInputs inputs = Inputs(rank, 1);
  inputs.loss_limit = 1e-3;
  const Outcome refused = Step(rank, inputs);
  EXPECT_EQ(refused.state.verdict, 1);
  EXPECT_EQ(refused.state.begun, 0);
  EXPECT_EQ(refused.state.last_norm, 0);
  EXPECT_TRUE(refused.weights == before);
}

TEST_F(OneStepTest, GradientThatIsNotFinite_EndsTheUpdatesThere) {
  Rank spoiled = Make(true);
  Rank good = Make(true);
  const std::vector<float> before = spoiled.made->Weights();
  const Outcome part = Step(spoiled, Inputs(spoiled, 1), true);
  EXPECT_EQ(part.state.verdict, 2);
  EXPECT_EQ(part.state.nonfinite, 1);
  EXPECT_EQ(part.state.begun, 1);
  EXPECT_EQ(part.state.last_norm, 0);
  // The embedding's gradient is the last one and the one that is spoiled.
  const Outcome whole = Step(good, Inputs(good, 1));
  const ParameterStore& p = spoiled.made->engine->parameters();
  size_t at = 0;
  for (int i = 0; i < p.size(); ++i) {
    const auto count = static_cast<size_t>(p.master(i).numel());
    const bool embedding = p.table()[static_cast<size_t>(i)].slot == spec::Slot::kTokenEmbedding;
    const std::vector<float>& want = embedding ? before : whole.weights;
    EXPECT_TRUE(std::equal(part.weights.begin() + static_cast<std::ptrdiff_t>(at),
                           part.weights.begin() + static_cast<std::ptrdiff_t>(at + count),
                           want.begin() + static_cast<std::ptrdiff_t>(at)))
        << p.table()[static_cast<size_t>(i)].name;
    at += count;
  }
}

TEST_F(OneStepTest, CodedGradients_UpdateWithWhatIsLeftOfThem) {
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    const v1::JobSpec spec = WithOptimizer(Job(), row.name);
    SCOPED_TRACE(row.name);
    Rank coded = Make(Coded(spec));
    Rank rounded = Make(spec);
    Rank exact = Make(spec);
    const kernels::StepInputs inputs = Inputs(coded, 1);
    const Outcome got = Step(coded, inputs);
    EXPECT_EQ(got.state.verdict, 0);
    EXPECT_TRUE(got.weights == Step(rounded, inputs, false, true).weights);
    const Outcome want = Step(exact, inputs);
    EXPECT_FALSE(got.weights == want.weights);
    EXPECT_NEAR(got.state.grad_norm, want.state.grad_norm, 1e-9 * want.state.grad_norm)
        << "the norm of the gradients as they were";
  }
}

TEST_F(OneStepTest, CodedGradientThatIsNotFinite_RefusesTheWholeStep) {
  Rank rank = Make(Coded(Job()));
  const std::vector<float> before = rank.made->Weights();
  const Outcome refused = Step(rank, Inputs(rank, 1), true);
  EXPECT_EQ(refused.state.verdict, 2);
  EXPECT_EQ(refused.state.nonfinite, 1);
  EXPECT_TRUE(refused.weights == before);
}

TEST_F(OneStepTest, SeveralMicroBatches_AreRefused) {
  for (const v1::JobSpec& spec : {Fused(Job()), Coded(Job())}) {
    const Rank rank = Make(spec);
    StepProgram program(*rank.made->engine, solo_.get(), 1.0, 2);
    const absl::Status status = program.Prepare();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("one micro-batch"));
  }
}

class ByBucketRunTest : public testing::Test {
 protected:
  ~ByBucketRunTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  v1::JobSpec Job() const {
    v1::JobSpec spec = Fused(OneEach(SmallJob(dir_.path(), "qwen3"), 1));
    spec.mutable_precision()->set_recipe("bf16");
    spec.mutable_optimizer()->set_grad_clip(0.05);  // acts from the second step on
    spec.mutable_train()->set_steps(6);
    spec.mutable_checkpoint()->set_every_steps(3);
    return spec;
  }
  std::unique_ptr<FakeLink> Run(const v1::JobSpec& spec,
                                const std::string& folder,
                                const v1::CheckpointAnnouncement* from = nullptr) {
    v1::Task task = MakeTask(spec, dir_.path() + "/" + folder);
    if (from != nullptr) {
      ResumeFrom(*from, task);
    }
    auto link = std::make_unique<FakeLink>(task, store_);
    RunTo(*link);
    return link;
  }
  // All tensors of a checkpoint.
  static std::string TensorsOf(const v1::CheckpointAnnouncement& checkpoint) {
    return *Env::Real().ReadFile(checkpoint.path() + "/model.safetensors") +
           *Env::Real().ReadFile(checkpoint.path() + "/" + std::string(kStateFile));
  }

  TempDir dir_;
  LocalKeyValueStore store_;
};

TEST_F(ByBucketRunTest, Resume_ClipsByTheCheckpointsNorm_AndGivesTheBitsOfTheWholeRun) {
  const auto whole = Run(Job(), "whole");
  ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
  ASSERT_EQ(whole->checkpoints.size(), 2U);
  const std::string file =
      *Env::Real().ReadFile(whole->checkpoints[0].path() + "/" + std::string(kMetaFile));
  const absl::StatusOr<CheckpointMeta> meta = ParseMeta(file, "meta.json");
  ASSERT_TRUE(meta.ok()) << meta.status();
  const double norm = nlohmann::json::parse(meta->extra_json)["last_norm"].get<double>();
  EXPECT_EQ(norm, whole->steps[2].grad_norm());
  EXPECT_GT(norm, 0.05) << "else no step is clipped";
  const auto resumed = Run(Job(), "resumed", &whole->checkpoints[0]);
  ASSERT_EQ(resumed->exits[0].reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
  EXPECT_TRUE(TensorsOf(resumed->checkpoints.back()) == TensorsOf(whole->checkpoints.back()));
}

TEST_F(ByBucketRunTest, CodedRun_ResumesWithTheSameBits) {
  const v1::JobSpec spec = Coded(Fused(Job(), false));
  const auto whole = Run(spec, "coded");
  ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
  ASSERT_EQ(whole->checkpoints.size(), 2U);
  const auto resumed = Run(spec, "coded_resumed", &whole->checkpoints[0]);
  ASSERT_EQ(resumed->exits[0].reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
  EXPECT_TRUE(TensorsOf(resumed->checkpoints.back()) == TensorsOf(whole->checkpoints.back()));
}

// Evaluations between the steps and checkpoints decode what fused updates have left.
TEST_F(ByBucketRunTest, FusedRun_OfWeightsInBlocks_HasTheCheckpointsOfUpdatesBehindBackward) {
  for (const char* const recipe : {"bf16", "fp8"}) {
    v1::JobSpec spec = Stored(Job(), "int8");
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_precision()->mutable_high_precision_layers()->set_first(0);
    spec.mutable_precision()->mutable_high_precision_layers()->set_last(0);
    spec.mutable_optimizer()->set_grad_clip(0);
    spec.mutable_train()->set_eval_every(2);
    const std::string name = recipe;
    const auto fused = Run(spec, name + "_fused");
    const auto behind = Run(Fused(spec, false), name + "_behind");
    ASSERT_EQ(fused->exits[0].reason(), v1::EXIT_REASON_FINISHED) << fused->exits[0].message();
    ASSERT_EQ(behind->exits[0].reason(), v1::EXIT_REASON_FINISHED) << behind->exits[0].message();
    ASSERT_EQ(fused->checkpoints.size(), 2U);
    ASSERT_EQ(behind->checkpoints.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(TensorsOf(fused->checkpoints[i]) == TensorsOf(behind->checkpoints[i])) << recipe;
    }
    const auto resumed = Run(spec, name + "_resumed", &fused->checkpoints[0]);
    ASSERT_EQ(resumed->exits[0].reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
    EXPECT_TRUE(TensorsOf(resumed->checkpoints.back()) == TensorsOf(fused->checkpoints.back()));
  }
}

TEST_F(ByBucketRunTest, CodedRun_OfWeightsInBlocks_ResumesWithTheSameBits) {
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    const v1::JobSpec spec = Coded(Fused(WithOptimizer(Stored(Job(), "q4_0"), row.name), false));
    const std::string name(row.name);
    const auto whole = Run(spec, name + "_coded");
    ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
    ASSERT_EQ(whole->checkpoints.size(), 2U);
    EXPECT_FALSE(TensorsOf(whole->checkpoints[0]) == TensorsOf(whole->checkpoints[1]));
    const auto resumed = Run(spec, name + "_coded_resumed", &whole->checkpoints[0]);
    ASSERT_EQ(resumed->exits[0].reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
    EXPECT_TRUE(TensorsOf(resumed->checkpoints.back()) == TensorsOf(whole->checkpoints.back()));
  }
}

TEST_F(ByBucketRunTest, NanInAGradient_EndsTheRunAndSaysWhy) {
  v1::JobSpec spec = Job();
  spec.mutable_checkpoint()->set_every_steps(0);
  ASSERT_TRUE(fault::Configure("trainer.nan_gradient=error@4").ok());
  const auto link = Run(spec, "spoiled");
  EXPECT_EQ(link->exits[0].reason(), v1::EXIT_REASON_NUMERICAL);
  EXPECT_THAT(link->exits[0].message(), HasSubstr("step 4"));
  EXPECT_THAT(link->exits[0].message(), HasSubstr("updated already (optimizer.fused)"));
  EXPECT_EQ(link->steps.size(), 3U);
  EXPECT_TRUE(link->checkpoints.empty()) << "half a step is never saved";
}

}  // namespace
}  // namespace hearth::trainer
