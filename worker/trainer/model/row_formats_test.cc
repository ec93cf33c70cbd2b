// Formats are those of the recipe's row: a row that the table does not have, with gradients in
// E4M3, against products of the decoded operands in double.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/formats.h"
#include "tests/support/trainer/test_model.h"
#include "tests/support/trainer/test_recipes.h"
#include "worker/trainer/model/linear.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kTokens = 32;
constexpr int64_t kWidth = 32;

spec::Recipe WithGradients(std::string_view recipe, spec::DType dtype) {
  spec::Recipe row = *spec::FindRecipe(recipe);
  row.dgrad.a.dtype = row.wgrad.b.dtype = dtype;
  return row;
}

v1::ModelSpec Llama() {
  v1::ModelSpec model = TinyModel("llama");
  model.set_hidden(kWidth);
  model.set_heads(2);
  model.set_kv_heads(2);
  model.set_head_dim(16);
  model.set_ffn_hidden(kWidth);
  return model;
}

std::unique_ptr<TestModel> Make(const spec::Recipe& row) {
  TestModelOptions options;
  options.model = Llama();
  options.row = &row;
  options.storage = kernels::DType::kF32;
  options.micro_batch = 2;
  options.sequence_length = kTokens / 2;
  absl::StatusOr<std::unique_ptr<TestModel>> made = MakeTestModel(options);
  EXPECT_TRUE(made.ok()) << made.status();
  std::unique_ptr<TestModel> test = *std::move(made);
  EXPECT_TRUE(test->quant->Reset(test->exec).ok());
  EXPECT_TRUE(test->quant->StartWeights(test->exec).ok());
  FillTestBatch(*test->model, kTokens / 2, 37, 3);
  return test;
}

// What a product reads of the values: with the scale that their own largest magnitude gives.
std::vector<double> Decoded(const float* values, int64_t count, kernels::DType dtype) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
  }
  const float scale = (dtype == kernels::DType::kE4M3 ? 448.0F : 57344.0F) / largest;
  std::vector<double> decoded;
  for (int64_t i = 0; i < count; ++i) {
    decoded.push_back(double{kernels::RoundToFormat(values[i] * scale, dtype)} / scale);
  }
  return decoded;
}

// || a - b || / || b ||.
double Distance(const kernels::TensorView& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a.as<float>()[i]} - b[i], 2);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<float> Waves(int64_t count, float frequency) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(i);
    values.push_back(std::sin(frequency * x) * std::exp(-4.0F * std::fabs(std::sin(x))));
  }
  return values;
}

class RowFormatsTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, RowFormatsTest, testing::ValuesIn(TensorScaledRecipes()));

TEST_P(RowFormatsTest, GradientsInE4m3_MultiplyAsTheyWereWritten) {
  const spec::Recipe row = WithGradients(GetParam(), spec::DType::kE4M3);
  const std::unique_ptr<TestModel> test = Make(row);
  const ModelContext& context = test->context;
  std::vector<float> x_values = Waves(kTokens * kWidth, 0.7F);
  std::vector<float> dy_values = Waves(kTokens * kWidth, 1.3F);
  std::vector<float> dx_values(kTokens * kWidth);
  std::vector<uint8_t> x_columns(kTokens * kWidth);
  const auto view = [](std::vector<float>& values) {
    return kernels::TensorView(values.data(), kernels::DType::kF32, {kTokens, kWidth});
  };
  const kernels::TensorView dx = view(dx_values);
  const Operand x = context.XOperand(spec::Slot::kFfnDown, 0, view(x_values), x_columns.data());
  const Operand dy = context.DyOperand(spec::Slot::kFfnDown, 0, view(dy_values));
  const Linear linear(context, spec::Slot::kFfnDown, 0, x, dy);
  // A plain pass records what delayed scaling goes by.
  Pass pass;
  pass.record = true;
  pass.accumulate = false;
  for (const bool quantised : {false, true}) {
    pass.format = spec::OwnIf(quantised);
    ASSERT_TRUE(test->quant->BeginMicroBatch(test->exec).ok());
    ASSERT_TRUE(x.Make(test->exec, pass, x.plain()).ok());
    ASSERT_TRUE(dy.Make(test->exec, pass, dy.plain()).ok());
    ASSERT_TRUE(linear.Backward(test->exec, pass, dy.plain(), dx).ok());
    ASSERT_TRUE(test->quant->UpdateActivations(test->exec, nullptr).ok());
  }
  const kernels::TensorView w = context.parameters->FindWeight(spec::Slot::kFfnDown, 0);
  const std::vector<double> qx = Decoded(x_values.data(), kTokens * kWidth, kernels::DType::kE4M3);
  const std::vector<double> qdy =
      Decoded(dy_values.data(), kTokens * kWidth, kernels::DType::kE4M3);
  const std::vector<double> qw = Decoded(w.as<float>(), kWidth * kWidth, kernels::DType::kE4M3);
  std::vector<double> want_dx(kTokens * kWidth);
  std::vector<double> want_dw(kWidth * kWidth);
  for (int64_t n = 0; n < kTokens; ++n) {
    for (int64_t o = 0; o < kWidth; ++o) {
      for (int64_t i = 0; i < kWidth; ++i) {
        want_dx[n * kWidth + i] += qdy[n * kWidth + o] * qw[o * kWidth + i];
        want_dw[o * kWidth + i] += qdy[n * kWidth + o] * qx[n * kWidth + i];
      }
    }
  }
  // dx is rounded to BF16.
  EXPECT_LT(Distance(dx, want_dx), 0x1p-8);
  EXPECT_LT(Distance(context.parameters->FindGradient(spec::Slot::kFfnDown, 0), want_dw), 1e-5);
}

// How far the gradients of a whole step are from those of the same weights in a plain pass.
double StepDistance(const spec::Recipe& row) {
  const std::unique_ptr<TestModel> test = Make(row);
  Pass pass;
  pass.record = true;
  pass.accumulate = false;
  const kernels::TensorView flat = test->parameters->flat_gradients().front();
  std::vector<double> plain;
  for (const bool quantised : {false, true}) {
    pass.format = spec::OwnIf(quantised);
    LossSums sums;
    const absl::Status status = test->model->ForwardBackward(test->exec, pass, 1.0 / kTokens, sums);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(test->quant->UpdateActivations(test->exec, nullptr).ok());
    if (!quantised) {
      plain.assign(flat.as<float>(), flat.as<float>() + flat.numel());
    }
  }
  return Distance(flat, plain);
}

// E4M3 has a bit more than E5M2, whose range a tensor with a scale of its own does not need.
TEST_P(RowFormatsTest, GradientsInE4m3_OfAWholeStep_AreNearerThanInE5m2) {
  const double e4m3 = StepDistance(WithGradients(GetParam(), spec::DType::kE4M3));
  const double e5m2 = StepDistance(WithGradients(GetParam(), spec::DType::kE5M2));
  EXPECT_GT(e4m3, 0);
  EXPECT_LT(e4m3, e5m2);
  EXPECT_LT(e5m2, 0.5) << "of noise, not of other numbers";
}

// A recipe in blocks, x and weights of one layout and gradients of another.
spec::Recipe InBlocks(const formats::BlockLayoutRow& forward,
                      const formats::BlockLayoutRow& gradients) {
  const auto operand = [](const formats::BlockLayoutRow& layout) {
    return spec::Operand{.dtype = layout.fp4 ? spec::DType::kE2M1 : spec::DType::kE4M3,
                         .scaling = spec::Scaling::kBlock,
                         .layout = layout.layout};
  };
  spec::Recipe row = *spec::FindRecipe("mxfp8");
  row.fprop.a = row.fprop.b = row.dgrad.b = row.wgrad.a = operand(forward);
  row.dgrad.a = row.wgrad.b = operand(gradients);
  return row;
}

// Each operand is read in the layout that it was written in: a step is no further off than with
// the coarser of the two layouts everywhere.
TEST(RowLayoutsTest, GradientsInOtherBlocks_OfAWholeStep_AreAsNearAsTheCoarserLayout) {
  for (const formats::BlockLayoutRow& forward : formats::kBlockLayouts) {
    for (const formats::BlockLayoutRow& gradients : formats::kBlockLayouts) {
      SCOPED_TRACE(testing::Message() << forward.name << ", gradients " << gradients.name);
      const double coarser = std::max(StepDistance(InBlocks(forward, forward)),
                                      StepDistance(InBlocks(gradients, gradients)));
      const double distance = StepDistance(InBlocks(forward, gradients));
      EXPECT_GT(distance, 0);
      EXPECT_LT(distance, 1.1 * coarser);
    }
  }
}

}  // namespace
}  // namespace hearth::trainer
