// Optimizer state in several formats: where it lies, what the optimizer and a checkpoint make of
// it.
#include "worker/trainer/rank/checkpoint/state.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/formats/codecs.h"
#include "common/spec/plan/parameter_table.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/checkpoint/shards.h"
#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {
namespace {

bool IsMatrix(const spec::Parameter& p) {
  return p.group == spec::ParameterGroup::kMatrix;
}
bool IsNoMatrix(const spec::Parameter& p) {
  return !IsMatrix(p);
}

// Rows that the table of optimizers does not have yet.
const std::vector<spec::OptimizerRow>& Rows() {
  constexpr auto kBF16 = spec::DType::kBF16;
  constexpr auto kF32 = spec::DType::kF32;
  static const auto& rows = *new std::vector<spec::OptimizerRow>{
      {"adamw", "fp32", "", {{"exp_avg"}, {"exp_avg_sq"}}},
      {"adamw", "bf16", "", {{"exp_avg", kBF16}, {"exp_avg_sq", kBF16}}},
      {"adamw",
       "mixed",
       "",
       {{"exp_avg", kBF16, &IsMatrix}, {"exp_avg", kF32, &IsNoMatrix}, {"exp_avg_sq", kF32}}}};
  return rows;
}

// What one rank holds.
struct Held {
  std::vector<spec::Parameter> table;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ParameterStore> store;
  Numerics numerics;
  kernels::Exec exec;
};

std::unique_ptr<Held> Hold(const spec::OptimizerRow& row, int rank, int shards) {
  auto held = std::make_unique<Held>();
  spec::TrainingPlanOptions plan;
  plan.shape = *spec::ResolveModelShape(TinyModel("qwen2"), 8);
  plan.recipe = spec::FindRecipe("bf16");
  held->table = spec::BuildParameterTable(plan.shape, plan.recipe->parameters, &row);
  plan.table = &held->table;
  plan.sequence_length = 8;
  plan.world_size = plan.shards = shards;
  plan.bucket_bytes = 1 << 12;
  held->numerics =
      *MakeNumerics(*plan.recipe, spec::GradientFormats(held->table), kernels::DType::kF32);
  held->arena = *Arena::Allocate(*spec::PlanTraining(plan), kernels::DType::kF32);
  held->store =
      std::make_unique<ParameterStore>(held->table, *held->arena, held->numerics, true,
                                       StoreShards{rank, shards, spec::PlanBuckets(plan)});
  EXPECT_TRUE(held->store->Initialise(held->exec, 3).ok());
  return held;
}

float ValueOf(const std::string& name, int64_t element) {
  return std::sin(static_cast<float>(name.size()) + 0.37F * static_cast<float>(element));
}

float Rounded(float value, spec::DType format) {
  return format == spec::DType::kBF16 ? formats::DecodeBf16(formats::EncodeBf16(value)) : value;
}

std::string NameOf(const spec::Parameter& p, size_t k) {
  return std::string(p.states[k].name) + "." + p.name;
}

// Calls `visit(parameter, k, view, first)` for each state of each piece.
template <typename Visit>
void ForEachState(const Held& held, Visit visit) {
  for (const StorePiece& piece : held.store->pieces()) {
    const spec::Parameter& p = held.table[static_cast<size_t>(piece.place.parameter)];
    ASSERT_EQ(piece.states.size(), p.states.size()) << p.name;
    for (size_t k = 0; k < piece.states.size(); ++k) {
      ASSERT_EQ(piece.states[k].dtype, p.states[k].dtype) << NameOf(p, k);
      visit(p, k, piece.states[k], piece.place.first_element);
    }
  }
}

void FillStates(const Held& held) {
  ForEachState(held, [&](const spec::Parameter& p, size_t k, const kernels::TensorView& view,
                         int64_t first) {
    std::vector<float> values;
    for (int64_t e = 0; e < view.numel(); ++e) {
      values.push_back(ValueOf(NameOf(p, k), first + e));
    }
    ASSERT_TRUE(held.store->Write(held.exec, view, values.data()).ok());
  });
}

// The state files of a checkpoint of so many ranks, opened.
LoadedCheckpoint Save(const spec::OptimizerRow& row, int shards, const std::string& dir) {
  LoadedCheckpoint loaded;
  loaded.path = dir;
  loaded.meta.shards = shards;
  Env& env = Env::Real();
  EXPECT_TRUE(env.CreateDirs(dir + "/state").ok());
  for (int rank = 0; rank < shards; ++rank) {
    const std::unique_ptr<Held> held = Hold(row, rank, shards);
    FillStates(*held);
    CheckpointContent content;
    content.sharded.rank = rank;
    content.sharded.shards = shards;
    AddTrainingState(*held->store, content);
    if (rank == 0) {
      const std::string file = dir + "/state/state.safetensors";
      EXPECT_TRUE(WriteTensors(env, file, content.state, {}, content).ok());
      loaded.state = *SafetensorsFile::Open(env, file);
    }
    if (shards > 1) {
      const auto entry = WriteShard(env, dir, content);
      EXPECT_TRUE(entry.ok()) << entry.status();
      loaded.shards.push_back(*SafetensorsFile::Open(env, dir + "/" + entry->path));
    }
  }
  return loaded;
}

// Reads `saved`, written with `from`, into a store with the formats of `to`: each file has the
// format of `from`, and the store the values that FillStates wrote, as both formats round them.
void ExpectRestores(const LoadedCheckpoint& saved,
                    const spec::OptimizerRow& from,
                    const spec::OptimizerRow& to) {
  std::vector<const SafetensorsFile*> files = {saved.state.get()};
  for (const auto& shard : saved.shards) {
    files.push_back(shard.get());
  }
  const std::unique_ptr<Held> held = Hold(to, 1, 2);
  const absl::Status restored = RestoreTensors(held->exec, *held->store, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  ForEachState(*held, [&](const spec::Parameter& p, size_t k, const kernels::TensorView& view,
                          int64_t first) {
    const spec::DType format = spec::StatesOf(from, p)[k].dtype;
    for (const SafetensorsFile* file : files) {
      if (const TensorView* tensor = file->Find(NameOf(p, k)); tensor != nullptr) {
        ASSERT_EQ(tensor->dtype,
                  format == spec::DType::kBF16 ? TensorDType::kBF16 : TensorDType::kF32);
      }
    }
    std::vector<float> values(static_cast<size_t>(view.numel()));
    ASSERT_TRUE(held->store->Read(held->exec, view, values.data()).ok());
    for (int64_t e = 0; e < view.numel(); ++e) {
      const float expected =
          first + e >= p.logical_elements()
              ? 0
              : Rounded(Rounded(ValueOf(NameOf(p, k), first + e), format), view.dtype);
      ASSERT_EQ(values[static_cast<size_t>(e)], expected) << NameOf(p, k) << " " << first + e;
    }
  });
}

TEST(StateFormatsTest, Checkpoint_HasEachStateInItsFormat_AndRestoresIntoAny) {
  for (const spec::OptimizerRow& from : Rows()) {
    for (const int shards : {1, 3}) {
      const TempDir dir;
      const LoadedCheckpoint saved = Save(from, shards, dir.path());
      for (const spec::OptimizerRow& to : Rows()) {
        SCOPED_TRACE(testing::Message()
                     << from.comment << " of " << shards << " to " << to.comment);
        ExpectRestores(saved, from, to);
      }
    }
  }
}

TEST(StateFormatsTest, AdamW_MomentsInBf16_AreNearThoseInFp32) {
  std::vector<std::vector<float>> moments;
  for (const spec::OptimizerRow& row : Rows()) {
    const std::unique_ptr<Held> held = Hold(row, 0, 1);
    v1::JobSpec job;
    job.mutable_optimizer()->set_beta1(0.9);
    job.mutable_optimizer()->set_beta2(0.95);
    job.mutable_optimizer()->set_eps(1e-8);
    const QuantState quant(spec::PrecisionPlan(), *held->store, *held->arena);
    const OptimizerContext context = {&job.optimizer(), held->store.get(), &quant, held->numerics};
    const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(row, context);
    kernels::StepInputs inputs;
    inputs.learning_rate = 1e-2;
    inputs.step = 1;
    optimizer->Scalars(1, absl::MakeSpan(inputs.optimizer));
    for (int i = 0; i < held->store->size(); ++i) {
      const kernels::TensorView& gradient = held->store->gradient(i);
      for (int64_t e = 0; e < gradient.numel(); ++e) {
        gradient.as<float>()[e] = ValueOf("gradient", i + e);
      }
    }
    const float scale = 1;
    UpdateArgs args;
    args.inputs = &inputs;
    args.grad_scale = &scale;
    std::vector<uint8_t> workspace(optimizer->WorkspaceBytes());
    held->exec.workspace = {workspace.data(), workspace.size()};
    ASSERT_TRUE(optimizer->Step(held->exec, args).ok());
    std::vector<float>& all = moments.emplace_back();
    ForEachState(*held, [&](const spec::Parameter& /*p*/, size_t /*k*/,
                            const kernels::TensorView& view, int64_t /*first*/) {
      std::vector<float> values(static_cast<size_t>(view.numel()));
      ASSERT_TRUE(held->store->Read(held->exec, view, values.data()).ok());
      all.insert(all.end(), values.begin(), values.end());
    });
  }
  size_t different = 0;
  for (size_t i = 0; i < moments[0].size(); ++i) {
    ASSERT_NEAR(moments[1][i], moments[0][i], std::abs(moments[0][i]) * 0x1p-7);
    ASSERT_NEAR(moments[2][i], moments[0][i], std::abs(moments[0][i]) * 0x1p-7);
    different += moments[1][i] != moments[0][i] ? 1 : 0;
  }
  EXPECT_GT(different, moments[0].size() / 2);
}

}  // namespace
}  // namespace hearth::trainer
