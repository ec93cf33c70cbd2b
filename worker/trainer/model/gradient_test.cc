// Every gradient of the model against central differences in double, and the recomputation levels
// against one another.
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"
#include "tests/support/trainer/test_recipes.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kSequence = 7;

struct Variant {
  std::string name;
  v1::ModelSpec model;
  std::vector<spec::LayerRow> rows = {};
};

// Layers of their own: each runs, plans and differentiates the blocks of its row alone.
constexpr spec::BlockKind kFfnFirst[] = {spec::BlockKind::kDenseFfn, spec::BlockKind::kAttention};
constexpr spec::BlockKind kAttentionAlone[] = {spec::BlockKind::kAttention};

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const std::string& family : Families()) {
    variants.push_back({family, TinyModel(family)});
  }
  Variant dropout = {"dropout_gelu", TinyModel("gpt2")};
  dropout.model.set_dropout(0.3);
  dropout.model.set_activation("gelu");
  dropout.model.set_tied(false);
  variants.push_back(dropout);
  Variant scaled = {"llama3_rope_all_biases", TinyModel("llama")};
  scaled.model.mutable_rope_scaling()->set_type("llama3");
  scaled.model.mutable_rope_scaling()->set_factor(8);
  scaled.model.mutable_rope_scaling()->set_original_max_position(4);
  scaled.model.set_attention_bias("all");
  scaled.model.set_mlp_bias(true);
  variants.push_back(scaled);
  variants.push_back({"mixed_rows", TinyModel("qwen3"), {kFfnFirst, kAttentionAlone}});
  return variants;
}

class GradientTest : public testing::TestWithParam<Variant> {};

double Loss(TestModel& test, const Pass& pass) {
  LossSums sums;
  const absl::Status status = test.model->ForwardBackward(test.exec, pass, 1.0, sums);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return sums.loss;
}

// Forward alone where that computes the same function.
double LossOnly(TestModel& test, const Pass& pass) {
  if (pass.dropout) {
    return Loss(test, pass);
  }
  LossSums sums;
  const absl::Status status = test.model->ForwardLoss(test.exec, sums);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return sums.loss;
}

TEST_P(GradientTest, ForwardBackward_EveryGradient_MatchesFiniteDifferences) {
  TestModelOptions options;
  options.model = GetParam().model;
  options.rows = GetParam().rows;
  options.sequence_length = kSequence;
  auto made = MakeTestModel(options);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  TestModel& test = **made;
  FillTestBatch(*test.model, kSequence, options.model.vocab(), 3);
  const Pass pass = {11, 2, 1, options.model.dropout() > 0};
  const ParameterStore& p = *test.parameters;
  // Ones and zeros of norms and biases would hide mistakes.
  for (int i = 0; i < p.size(); ++i) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    for (int64_t j = 0; j < parameter.logical_elements(); ++j) {
      p.weight(i).as<double>()[j] += 0.05 * std::sin(static_cast<double>(int64_t{7} * i + 3 * j));
    }
  }
  const kernels::TensorView& gradients = p.flat_gradients().front();
  std::memset(gradients.data, 0, gradients.bytes());
  Loss(test, pass);
  const double* flat = gradients.as<double>();
  const std::vector<double> analytic(flat, flat + gradients.numel());
  for (int i = 0; i < p.size(); ++i) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    const auto* gradient = analytic.data() + (p.gradient(i).as<double>() - flat);
    double largest = 0;
    double error = 0;
    const int64_t count = parameter.logical_elements();
    for (int64_t j = 0; j < count; ++j) {
      double& weight = p.weight(i).as<double>()[j];
      const double saved = weight;
      constexpr double kStep = 1e-5;
      weight = saved + kStep;
      const double above = LossOnly(test, pass);
      weight = saved - kStep;
      const double below = LossOnly(test, pass);
      weight = saved;
      const double numeric = (above - below) / (2 * kStep);
      largest = std::max(largest, std::abs(numeric));
      error = std::max(error, std::abs(numeric - gradient[j]));
    }
    EXPECT_LE(error, 1e-7 + 1e-6 * largest) << parameter.name << ", largest " << largest;
    for (int64_t j = count; j < parameter.elements(); ++j) {
      ASSERT_EQ(gradient[j], 0.0) << parameter.name << ": padding has a gradient";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         GradientTest,
                         testing::ValuesIn(Variants()),
                         [](const auto& row) { return row.param.name; });

// What a pass tells its hook, in order.
class CallRecorder : public PassHook {
 public:
  absl::Status BeforeForward(const kernels::Exec& /*exec*/, int32_t moment) override {
    calls.push_back(absl::StrCat("before ", moment));
    return absl::OkStatus();
  }
  absl::Status BeforeBackward(const kernels::Exec& /*exec*/, int32_t moment) override {
    calls.push_back(absl::StrCat("begin ", moment));
    return absl::OkStatus();
  }
  absl::Status AfterBackward(const kernels::Exec& /*exec*/, int32_t moment) override {
    calls.push_back(absl::StrCat("after ", moment));
    return absl::OkStatus();
  }
  std::vector<std::string> calls;
};

TEST(PassHookTest, ForwardBackward_OfTwoLayers_CallsInOrderOfThePass) {
  TestModelOptions options;
  options.model = TinyModel("qwen2");
  options.sequence_length = kSequence;
  auto made = MakeTestModel(options);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  TestModel& test = **made;
  FillTestBatch(*test.model, kSequence, options.model.vocab(), 3);
  CallRecorder recorder;
  Pass pass;
  pass.hook = &recorder;
  Loss(test, pass);
  EXPECT_THAT(
      recorder.calls,
      testing::ElementsAre("before 0", "before 1", "before 2", "before 3", "before 4", "before 5",
                           "begin 5", "after 5", "begin 6", "after 6", "begin 7", "after 7",
                           "begin 8", "after 8", "begin 9", "after 9", "begin 10", "after 10"));
}

class RecomputeTest
    : public testing::TestWithParam<std::tuple<std::string, std::string, spec::Recompute>> {};

TEST_P(RecomputeTest, ForwardBackward_EveryLevel_GivesTheSameBits) {
  const auto& [family, recipe, level] = GetParam();
  std::vector<std::vector<float>> gradients;
  std::vector<double> losses;
  for (const spec::Recompute recompute : {spec::Recompute::kNone, level}) {
    TestModelOptions options;
    options.model = TinyModel(family);
    options.model.set_dropout(0.2);
    options.recipe = recipe;
    options.storage = kernels::DType::kF32;
    options.recompute = recompute;
    options.sequence_length = kSequence;
    auto made = MakeTestModel(options);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    TestModel& test = **made;
    for (uint32_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      FillTestBatch(*test.model, kSequence, options.model.vocab(), micro_batch);
      losses.push_back(Loss(test, {11, 2, micro_batch, true}));
    }
    const kernels::TensorView& flat = test.parameters->flat_gradients().front();
    gradients.emplace_back(flat.as<float>(), flat.as<float>() + flat.numel());
  }
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(losses[1], losses[3]);
  EXPECT_EQ(gradients[0], gradients[1]);
}

INSTANTIATE_TEST_SUITE_P(Levels,
                         RecomputeTest,
                         testing::Combine(testing::ValuesIn(Families()),
                                          testing::ValuesIn(PlainRecipes()),
                                          testing::Values(spec::Recompute::kNormAct,
                                                          spec::Recompute::kFfn,
                                                          spec::Recompute::kAttention,
                                                          spec::Recompute::kBlock)),
                         [](const auto& row) {
                           return std::get<0>(row.param) + "_" + std::get<1>(row.param) + "_" +
                                  std::string(spec::RecomputeName(std::get<2>(row.param)));
                         });

}  // namespace
}  // namespace hearth::trainer
