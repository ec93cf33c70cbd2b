// Masters of some parameters alone: the others are updated themselves.
#include <cstdint>
#include <map>
#include <memory>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"

namespace hearth::trainer {
namespace {

bool IsMatrix(const spec::Parameter& p) {
  return p.group == spec::ParameterGroup::kMatrix;
}

TEST(MasterFormatsTest, MatricesWithoutMasters_LeaveTheOthersTheirs) {
  TestModelOptions options;
  options.model = TinyModel("qwen3");
  options.recipe = "bf16";
  options.storage = kernels::DType::kF32;
  options.change_table = [](std::vector<spec::Parameter>& table) {
    for (spec::Parameter& p : table) {
      p.master = IsMatrix(p) ? p.storage : spec::DType::kF32;
    }
  };
  const auto made = MakeTestModel(options);
  ASSERT_TRUE(made.ok()) << made.status();
  const ParameterStore& store = *(*made)->parameters;
  EXPECT_TRUE(store.some_weights_are_masters());
  std::map<const float*, int64_t> taken;
  for (int i = 0; i < store.size(); ++i) {
    const spec::Parameter& parameter = store.table()[static_cast<size_t>(i)];
    SCOPED_TRACE(parameter.name);
    EXPECT_EQ(store.weight_is_master(i), IsMatrix(parameter));
    EXPECT_EQ(store.master(i).data == store.weight(i).data, IsMatrix(parameter));
    EXPECT_EQ(store.master(i).numel(), parameter.elements());
    if (!IsMatrix(parameter)) {
      taken[store.master(i).as<float>()] = parameter.elements();
    }
  }
  const float* end = nullptr;
  int64_t elements = 0;
  for (const auto& [begin, count] : taken) {
    EXPECT_TRUE(end == nullptr || begin >= end) << "masters overlap";
    end = begin + count;
    elements += count;
  }
  const spec::MemoryPlan& plan = (*made)->arena->plan();
  EXPECT_GE(plan.ClassBytes(spec::BufferClass::kMasters), 4 * elements);
  EXPECT_LT(plan.ClassBytes(spec::BufferClass::kMasters),
            plan.ClassBytes(spec::BufferClass::kParameters));
}

}  // namespace
}  // namespace hearth::trainer
