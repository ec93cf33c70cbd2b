#include "common/spec/fields/choices.h"

#include <string>
#include <vector>

#include "common/spec/fields/rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::UnorderedElementsAre;

template <typename Section>
std::vector<std::string> Values(const char* field) {
  const v1::FieldRow& row = RowOf(*Section::descriptor()->FindFieldByName(field));
  return {row.one_of().begin(), row.one_of().end()};
}

TEST(ChoicesTest, Deterministic_OnlyTrueIsYes) {
  ASSERT_THAT(Values<v1::TrainSpec>("deterministic"),
              UnorderedElementsAre("auto", "true", "false"));
  v1::TrainSpec train;
  EXPECT_FALSE(WantsDeterministic(train));
  for (const std::string& value : Values<v1::TrainSpec>("deterministic")) {
    train.set_deterministic(value);
    EXPECT_EQ(WantsDeterministic(train), value == "true") << value;
  }
}

}  // namespace
}  // namespace hearth::spec
