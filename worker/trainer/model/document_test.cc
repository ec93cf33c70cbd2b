// Attention within documents: a document packed among others is as if it were alone.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"
#include "tests/support/trainer/test_recipes.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kSequence = 24;
constexpr int64_t kRows = 2 * kSequence;

// Rows [begin, end) of the batch.
struct Document {
  int64_t begin;
  int64_t end;
};
constexpr Document kDocuments[] = {{0, 5}, {5, 6}, {6, 19}, {19, 24}, {24, 35}, {35, 48}};

std::unique_ptr<TestModel> Make(const TestModelOptions& options) {
  auto made = MakeTestModel(options);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// Random tokens in kDocuments, as the loader gives them.
void FillDocuments(TestModel& test) {
  FillTestBatch(*test.model, kSequence, 37, 5);
  const BatchBuffers batch = test.model->batch();
  for (const Document& document : kDocuments) {
    for (int64_t i = document.begin; i < document.end; ++i) {
      batch.start[i] = static_cast<int32_t>(document.begin % kSequence);
      batch.position[i] = static_cast<int32_t>(i - document.begin);
      batch.loss_weight[i] = i + 1 < document.end ? 1.0F : 0.0F;
      batch.targets[i] = i + 1 < document.end ? batch.tokens[i + 1] : 0;
    }
  }
}

void CountOnly(TestModel& test, const Document& document) {
  const BatchBuffers batch = test.model->batch();
  for (int64_t i = 0; i < kRows; ++i) {
    batch.loss_weight[i] = i >= document.begin && i + 1 < document.end ? 1.0F : 0.0F;
  }
}

double Loss(TestModel& test) {
  LossSums sums;
  const absl::Status status = test.model->ForwardLoss(test.exec, sums);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return sums.loss;
}

// The loss, and all gradients behind one another.
std::vector<double> LossAndGradients(TestModel& test) {
  Pass pass;
  pass.accumulate = false;
  LossSums sums;
  const absl::Status status = test.model->ForwardBackward(test.exec, pass, 1.0, sums);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<double> out = {sums.loss, sums.weight};
  for (const kernels::TensorView& flat : test.parameters->flat_gradients()) {
    out.insert(out.end(), flat.as<double>(), flat.as<double>() + flat.numel());
  }
  return out;
}

class DocumentTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Whatever the other documents hold, a document's loss keeps every bit, in each recipe without
// scales that tokens share.
TEST_P(DocumentTest, ForwardLoss_TokenOfAnotherDocumentChanges_SameBits) {
  TestModelOptions options;
  options.model = TinyModel(std::get<0>(GetParam()));
  options.recipe = std::get<1>(GetParam());
  options.storage = kernels::DType::kF32;
  options.sequence_length = kSequence;
  options.documents = true;
  const std::unique_ptr<TestModel> test = Make(options);
  for (const Document& watched : kDocuments) {
    FillDocuments(*test);
    CountOnly(*test, watched);
    const double before = Loss(*test);
    const BatchBuffers batch = test->model->batch();
    for (const Document& changed : kDocuments) {
      for (int64_t i = changed.begin; i < changed.end; i += 3) {
        const int32_t token = batch.tokens[i];
        batch.tokens[i] = (token + 11) % 37;
        if (changed.begin == watched.begin && i + 1 < changed.end) {
          EXPECT_NE(Loss(*test), before) << "the document's own token " << i;
        } else if (changed.begin != watched.begin) {
          EXPECT_EQ(Loss(*test), before) << "token " << i << ", document at " << watched.begin;
        }
        batch.tokens[i] = token;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes,
                         DocumentTest,
                         testing::Combine(testing::ValuesIn(Families()),
                                          testing::ValuesIn(PlainRecipes())),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param), "_", std::get<1>(row.param));
                         });

class AloneTest : public testing::TestWithParam<std::string> {};

// In double: losses and gradients are those of a causal model that is given each document alone.
TEST_P(AloneTest, ForwardBackward_AreThoseOfEachDocumentAlone) {
  TestModelOptions options;
  options.model = TinyModel(GetParam());
  options.sequence_length = kSequence;
  options.documents = true;
  const std::unique_ptr<TestModel> packed = Make(options);
  FillDocuments(*packed);
  const std::vector<double> got = LossAndGradients(*packed);
  options.documents = false;
  const std::unique_ptr<TestModel> causal = Make(options);
  std::vector<double> want(got.size(), 0.0);
  for (const Document& document : kDocuments) {
    FillTestBatch(*causal->model, kSequence, 37, 8);
    const BatchBuffers batch = causal->model->batch();
    const BatchBuffers from = packed->model->batch();
    const int64_t length = document.end - document.begin;
    std::copy_n(from.tokens + document.begin, length, batch.tokens);
    std::copy_n(from.targets + document.begin, length, batch.targets);
    CountOnly(*causal, {0, length});
    const std::vector<double> alone = LossAndGradients(*causal);
    std::transform(want.begin(), want.end(), alone.begin(), want.begin(), std::plus<>());
  }
  EXPECT_EQ(got[1], want[1]) << "targets that count";
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-11) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AloneTest, testing::ValuesIn(Families()), [](const auto& row) {
  return row.param;
});

}  // namespace
}  // namespace hearth::trainer
