#include "worker/trainer/cli/bench/step_floor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/spec/plan/parameter_table.h"
#include "tests/support/trainer/test_model.h"

namespace hearth::trainer {
namespace {

spec::ModelShape Shape(const char* family, bool tied) {
  v1::ModelSpec model = TinyModel(family);
  model.set_tied(tied);
  return *spec::ResolveModelShape(model, 32);
}

// Every weight that a product reads is in it, however many kinds of blocks the model has.
TEST(FloorLinears, TheirProducts_AreThoseOfTheModel) {
  for (const char* family : {"gpt2", "qwen2"}) {
    for (const bool tied : {false, true}) {
      const spec::ModelShape shape = Shape(family, tied);
      const std::vector<spec::Parameter> table = spec::BuildParameterTable(shape);
      double elements = 0;
      int heads = 0;
      for (const FloorLinear& linear : FloorLinears(table)) {
        elements += static_cast<double>(linear.calls * linear.weight->elements());
        EXPECT_EQ(linear.calls, linear.head ? 1 : shape.layers) << linear.name;
        heads += linear.head ? 1 : 0;
      }
      EXPECT_EQ(heads, 1);
      const auto layers = static_cast<double>(shape.layers);
      const auto width = static_cast<double>(shape.hidden);
      EXPECT_EQ(elements, layers * width *
                                  static_cast<double>(shape.qkv_width() + shape.q_width() +
                                                      shape.ffn_in_width() + shape.ffn_hidden) +
                              width * static_cast<double>(shape.padded_vocab))
          << family;
    }
  }
}

TEST(FloorLinears, Names_AreThoseOfTheWeights) {
  const std::vector<spec::Parameter> table = spec::BuildParameterTable(Shape("qwen2", false));
  std::vector<std::string> names;
  for (const FloorLinear& linear : FloorLinears(table)) {
    names.push_back(linear.name);
  }
  EXPECT_EQ(names.size(), 5U);
  EXPECT_EQ(names.front(), "qkv");
  EXPECT_EQ(names.back(), "head");
}

}  // namespace
}  // namespace hearth::trainer
