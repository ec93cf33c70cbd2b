// Gradients of several formats in one model, as values rounded to them: the CPU stores all wide.
#include <cmath>
#include <memory>
#include <vector>

#include "common/formats/codecs.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kSequence = 7;

bool IsMatrix(const spec::Parameter& p) {
  return p.group == spec::ParameterGroup::kMatrix;
}

// Gradients, one vector a parameter.
std::vector<std::vector<float>> Gradients(bool mixed) {
  TestModelOptions options;
  options.model = TinyModel("qwen3");
  options.storage = kernels::DType::kF32;
  options.sequence_length = kSequence;
  if (mixed) {
    options.change_table = [](std::vector<spec::Parameter>& table) {
      for (spec::Parameter& p : table) {
        p.gradient = IsMatrix(p) ? spec::DType::kBF16 : spec::DType::kF32;
      }
    };
  }
  const auto made = MakeTestModel(options);
  EXPECT_TRUE(made.ok()) << made.status();
  TestModel& test = **made;
  EXPECT_EQ(test.parameters->flat_gradients().size(), mixed ? 2U : 1U);
  FillTestBatch(*test.model, kSequence, options.model.vocab(), 3);
  Pass pass;
  pass.accumulate = false;
  LossSums sums;
  EXPECT_TRUE(test.model->ForwardBackward(test.exec, pass, 0.1, sums).ok());
  std::vector<std::vector<float>> gradients;
  for (const kernels::TensorView& gradient : test.parameters->gradients()) {
    gradients.emplace_back(gradient.as<float>(), gradient.as<float>() + gradient.numel());
  }
  return gradients;
}

TEST(GradientFormatsTest, Matrices_InBf16_AreRounded_AndTheOthersAreNot) {
  const std::vector<std::vector<float>> wide = Gradients(false);
  const std::vector<std::vector<float>> mixed = Gradients(true);
  const auto table =
      spec::BuildParameterTable(*spec::ResolveModelShape(TinyModel("qwen3"), kSequence));
  ASSERT_EQ(wide.size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    double largest = 0;
    for (size_t e = 0; e < wide[i].size(); ++e) {
      const float expected =
          IsMatrix(table[i]) ? formats::DecodeBf16(formats::EncodeBf16(wide[i][e])) : wide[i][e];
      ASSERT_EQ(mixed[i][e], expected) << table[i].name << "[" << e << "]";
      largest = std::max<double>(largest, std::abs(wide[i][e]));
    }
    EXPECT_GT(largest, 0) << table[i].name;
  }
}

}  // namespace
}  // namespace hearth::trainer
