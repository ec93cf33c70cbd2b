#include "common/base/table_rows.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

enum class Fruit { kApple, kPear };

struct FruitRow {
  Fruit kind;
  std::string_view name;
};

constexpr FruitRow kFruits[] = {
    {Fruit::kApple, "apple"}, {Fruit::kPear, "pear"}, {Fruit::kPear, "late pear"}};

TEST(FindRow, ByAnyMember_IsTheFirstOrNone) {
  EXPECT_EQ(FindRow(kFruits, &FruitRow::name, std::string("pear")), &kFruits[1]);
  EXPECT_EQ(FindRow(kFruits, &FruitRow::kind, Fruit::kPear), &kFruits[1]);
  EXPECT_EQ(FindRow(kFruits, &FruitRow::name, "plum"), nullptr);
  static_assert(FindRow(kFruits, &FruitRow::kind, Fruit::kApple)->name == "apple");
}

TEST(ColumnOf, Names_KeepTheOrder) {
  EXPECT_THAT(ColumnOf(kFruits, &FruitRow::name), ElementsAre("apple", "pear", "late pear"));
}

TEST(EnumNames, EachValue_HasItsOwn) {
  static constexpr EnumNames<Fruit, Fruit::kPear> kNames = {"apple", "pear"};
  EXPECT_EQ(kNames[Fruit::kApple], "apple");
  EXPECT_EQ(kNames[Fruit::kPear], "pear");
}

}  // namespace
}  // namespace hearth
