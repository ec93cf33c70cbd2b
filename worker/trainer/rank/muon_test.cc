// Muon in the engine: one step and the next against double precision, matrix by matrix.
#include "kernels/muon/muon.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"
#include "gtest/gtest.h"
#include "kernels/core/rng.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {
namespace {

constexpr double kLearningRate = 1e-2;
constexpr double kMomentum = 0.95;
constexpr float kScale = 0.5F;
constexpr int kSteps = 2;

std::unique_ptr<Engine> MakeEngine(const v1::JobSpec& spec) {
  EngineOptions options;
  options.spec = spec;
  options.micro_batch = 1;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Initialise().ok());
  return *std::move(engine);
}

float GradientAt(int parameter, int64_t element, int step) {
  const kernels::RngKey key = {5, kernels::RngPurpose::kTest, static_cast<uint32_t>(step), 0,
                               static_cast<uint32_t>(parameter)};
  return static_cast<float>(kernels::RngWord(key, static_cast<uint64_t>(element))) * 0x1p-31F - 1;
}

void Update(Engine& engine, int step, int32_t skip = 0) {
  const ParameterStore& p = engine.parameters();
  for (int i = 0; i < p.size(); ++i) {
    for (int64_t e = 0; e < p.gradient(i).numel(); ++e) {
      p.gradient(i).as<float>()[e] = GradientAt(i, e, step);
    }
  }
  engine.step_inputs()->learning_rate = kLearningRate;
  engine.step_inputs()->step = step;
  engine.optimizer().Scalars(step, absl::MakeSpan(engine.step_inputs()->optimizer));
  UpdateArgs args;
  args.inputs = engine.step_inputs();
  args.grad_scale = &kScale;
  args.skip = &skip;
  ASSERT_TRUE(engine.optimizer().Step(engine.exec(), args).ok());
}

std::vector<float> ValuesOf(const kernels::TensorView& view) {
  return {view.as<float>(), view.as<float>() + view.numel()};
}

// Rows of one matrix of a tensor, after kSteps.
struct Expected {
  std::vector<double> master;
  std::vector<double> momentum;
};

Expected Reference(int parameter,
                   const spec::LogicalMatrix& matrix,
                   const std::vector<float>& before,
                   double decay) {
  const int64_t first = matrix.row_offset * matrix.cols;
  const int64_t count = matrix.rows * matrix.cols;
  Expected e;
  e.master.assign(before.begin() + first, before.begin() + first + count);
  e.momentum.resize(static_cast<size_t>(count));
  std::vector<double> u(e.momentum.size());
  const kernels::TensorView view = kernels::View(u.data(), {matrix.rows, matrix.cols});
  std::vector<double> workspace(kernels::NewtonSchulzWorkspaceBytes(kernels::Device::kCpu,
                                                                    view.dtype, matrix.rows,
                                                                    matrix.cols, 1) /
                                    sizeof(double) +
                                8);
  kernels::Exec exec;
  const size_t skip = (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) / sizeof(double);
  exec.workspace = {workspace.data() + skip, (workspace.size() - skip) * sizeof(double)};
  const double rate = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.cols)));
  for (int step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < u.size(); ++i) {
      const double g =
          double{kScale} * GradientAt(parameter, first + static_cast<int64_t>(i), step);
      e.momentum[i] = kMomentum * e.momentum[i] + g;
      u[i] = g + kMomentum * e.momentum[i];
    }
    const kernels::NewtonSchulzArgs args = {absl::MakeConstSpan(&view, 1),
                                            kernels::FindNewtonSchulz("tuned")};
    EXPECT_TRUE(kernels::NewtonSchulz(exec, args).ok());
    for (size_t i = 0; i < u.size(); ++i) {
      e.master[i] = e.master[i] * (1 - kLearningRate * decay) - kLearningRate * rate * u[i];
    }
  }
  return e;
}

// Makes kSteps updates; returns the masters as they were before.
std::vector<std::vector<float>> MastersBeforeSteps(Engine& engine) {
  std::vector<std::vector<float>> before;
  for (int i = 0; i < engine.parameters().size(); ++i) {
    before.push_back(ValuesOf(engine.parameters().master(i)));
  }
  for (int step = 1; step <= kSteps; ++step) {
    Update(engine, step);
  }
  return before;
}

class MuonTest : public testing::Test {
 protected:
  void ExpectNearTheFormula(const v1::JobSpec& spec, const spec::StateFormatRow& format) {
    const std::unique_ptr<Engine> engine = MakeEngine(spec);
    const ParameterStore& p = engine->parameters();
    const std::vector<std::vector<float>> before = MastersBeforeSteps(*engine);
    const bool no_masters = spec.optimizer().master() == "none";
    const bool plain = format.name == spec::StateFormatRows()[0].name;
    const formats::StateCodecRow& codec =
        formats::RowOf(format.CodecOf(spec::StateKind::kMomentum));
    for (const StorePiece& piece : p.pieces()) {
      const int i = piece.place.parameter;
      const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
      const bool matrix = parameter.group == spec::ParameterGroup::kMatrix;
      for (size_t m = 0; matrix && m < parameter.matrices.size(); ++m) {
        const spec::LogicalMatrix& part = parameter.matrices[m];
        const Expected e =
            Reference(i, part, before[static_cast<size_t>(i)], spec.optimizer().weight_decay());
        const float* const got = piece.master.as<float>() + part.row_offset * part.cols;
        double error = 0;
        double moved = 0;
        for (size_t k = 0; k < e.master.size(); ++k) {
          const double start =
              before[static_cast<size_t>(i)][static_cast<size_t>(part.row_offset * part.cols) + k];
          // Without masters each step rounds by less than a last place, 2^-7 of the value.
          const double largest = std::max(std::abs(start), std::abs(e.master[k]));
          const double place = no_masters ? kSteps * 0x1p-7 * largest : 0;
          const double off = std::max(0.0, std::abs(double{got[k]} - e.master[k]) - place);
          error += off * off;
          moved += (e.master[k] - start) * (e.master[k] - start);
        }
        // A momentum in int8 is off by 1 / 440 of the largest value of its block at most (in the
        // mean square), in BF16 by 2^-9 of its own; the orthogonal step lifts that tenfold at most.
        // In 4 bits the rest of a matrix of noise, which is most of it, is off by 0.07 of itself.
        const double rounded = codec.bits == 4 ? 0.06 : 0.03;
        const double bound = !plain ? rounded : (no_masters ? 1e-3 : 1e-4);
        EXPECT_LT(std::sqrt(error / moved), bound) << parameter.name << part.name;
        EXPECT_GT(moved, 0);
      }
    }
  }

  TempDir dir_;
};

TEST_F(MuonTest, TwoSteps_EachMatrixOfAFusedTensorByItself_FollowTheFormula) {
  const v1::JobSpec spec = WithMuon(SmallJob(dir_.path(), "qwen2"));
  const std::unique_ptr<Engine> engine = MakeEngine(spec);
  const ParameterStore& p = engine->parameters();
  const std::vector<std::vector<float>> before = MastersBeforeSteps(*engine);
  int fused = 0;
  for (const StorePiece& piece : p.pieces()) {
    const int i = piece.place.parameter;
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    if (parameter.group != spec::ParameterGroup::kMatrix) {
      continue;
    }
    fused += parameter.matrices.size() > 1 ? 1 : 0;
    for (const spec::LogicalMatrix& matrix : parameter.matrices) {
      const Expected e =
          Reference(i, matrix, before[static_cast<size_t>(i)], spec.optimizer().weight_decay());
      const int64_t first = matrix.row_offset * matrix.cols;
      for (size_t k = 0; k < e.master.size(); ++k) {
        const int64_t at = first + static_cast<int64_t>(k);
        ASSERT_NEAR(piece.master.as<float>()[at], e.master[k], 1e-3 * kLearningRate)
            << parameter.name << " " << matrix.name << " " << k;
        ASSERT_NEAR(piece.states[0].as<float>()[at], e.momentum[k], 1e-6) << parameter.name;
      }
    }
  }
  EXPECT_GT(fused, 0) << "a fused tensor is among them";
}

// Fewer bits of state and no masters: near the formula in double, by what each format rounds.
TEST_F(MuonTest, TwoStepsInEachFormat_FollowTheFormula) {
  for (const spec::StateFormatRow& format : spec::StateFormatRows()) {
    for (const char* const master : {"fp32", "none"}) {
      SCOPED_TRACE(testing::Message() << format.name << ", master " << master);
      v1::JobSpec spec = WithMuon(SmallJob(dir_.path(), "qwen2"));
      spec.mutable_precision()->set_recipe("bf16");
      spec.mutable_model()->set_hidden(64);
      spec.mutable_model()->set_head_dim(16);
      spec.mutable_model()->set_ffn_hidden(160);  // longer than twice its width
      spec.mutable_optimizer()->set_state(std::string(format.name));
      spec.mutable_optimizer()->set_master(master);
      ExpectNearTheFormula(spec, format);
    }
  }
}

TEST_F(MuonTest, EverythingElse_HasTheBitsOfAdamW) {
  const v1::JobSpec spec = SmallJob(dir_.path(), "qwen2");
  const std::unique_ptr<Engine> muon = MakeEngine(WithMuon(spec));
  const std::unique_ptr<Engine> adamw = MakeEngine(spec);
  for (int step = 1; step <= kSteps; ++step) {
    Update(*muon, step);
    Update(*adamw, step);
  }
  int compared = 0;
  for (size_t i = 0; i < muon->parameters().pieces().size(); ++i) {
    const StorePiece& a = muon->parameters().pieces()[i];
    const StorePiece& b = adamw->parameters().pieces()[i];
    const spec::Parameter& parameter =
        muon->parameters().table()[static_cast<size_t>(a.place.parameter)];
    const bool matrix = parameter.group == spec::ParameterGroup::kMatrix;
    EXPECT_EQ(ValuesOf(a.master) == ValuesOf(b.master), !matrix) << parameter.name;
    compared += matrix ? 0 : 1;
    for (size_t k = 0; !matrix && k < a.states.size(); ++k) {
      EXPECT_EQ(ValuesOf(a.states[k]), ValuesOf(b.states[k])) << parameter.name;
    }
  }
  EXPECT_GT(compared, 3);
}

TEST_F(MuonTest, RefusedStep_WritesNoMasterAndNoState) {
  const std::unique_ptr<Engine> engine = MakeEngine(WithMuon(SmallJob(dir_.path())));
  Update(*engine, 1);
  std::vector<std::vector<float>> before;
  const auto visit = [&](const auto& each) {
    for (const StorePiece& piece : engine->parameters().pieces()) {
      each(ValuesOf(piece.master));
      each(ValuesOf(piece.weight));
      for (const kernels::TensorView& state : piece.states) {
        each(ValuesOf(state));
      }
    }
  };
  visit([&](std::vector<float> values) { before.push_back(std::move(values)); });
  Update(*engine, 2, 1);
  size_t at = 0;
  visit([&](const std::vector<float>& values) { EXPECT_EQ(values, before[at++]); });
  EXPECT_EQ(at, before.size());
}

TEST_F(MuonTest, Plan_HasTheMomentumOfMatricesAndTheMomentsOfTheRest) {
  const v1::JobSpec spec = SmallJob(dir_.path(), "qwen2");
  const std::unique_ptr<Engine> muon = MakeEngine(WithMuon(spec));
  const std::unique_ptr<Engine> adamw = MakeEngine(spec);
  int64_t matrices = 0;
  for (const spec::Parameter& parameter : muon->parameters().table()) {
    // Tensors begin at multiples of kTensorAlignElements.
    const int64_t units =
        (parameter.elements() + spec::kTensorAlignElements - 1) / spec::kTensorAlignElements;
    matrices += spec::IsHiddenMatrix(parameter) ? units * spec::kTensorAlignElements : 0;
  }
  EXPECT_EQ(adamw->plan().ClassBytes(spec::BufferClass::kOptimizer) -
                muon->plan().ClassBytes(spec::BufferClass::kOptimizer),
            4 * matrices);
}

// The names are in the job file's row too.
TEST(NewtonSchulzRows, AreWhatTheJobFileOffers) {
  EXPECT_EQ(kernels::NewtonSchulzNames(), (std::vector<std::string_view>{"tuned", "standard"}));
}

}  // namespace
}  // namespace hearth::trainer
