#include "common/formats/block_layout.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::formats {
namespace {

TEST(BlockLayouts, Rows_AreInTheOrderOfTheEnumerators) {
  std::set<std::string> names;
  for (size_t i = 0; i < kBlockLayoutCount; ++i) {
    const BlockLayoutRow& row = kBlockLayouts[i];
    EXPECT_EQ(static_cast<size_t>(row.layout), i) << row.name;
    EXPECT_EQ(&RowOf(row.layout), &row) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.layout, VisitLayout(row.layout, [](auto layout) { return layout.value; }));
    // Kernels work on tiles of 128 x 128, in spans of 16.
    EXPECT_TRUE(row.length >= 16 && row.length <= 128 && 128 % row.length == 0) << row.name;
    EXPECT_EQ(HoldsValues(row, DType::kE2M1), row.fp4) << row.name;
    EXPECT_EQ(HoldsValues(row, DType::kE4M3), !row.fp4) << row.name;
    EXPECT_FALSE(HoldsValues(row, DType::kBF16)) << row.name;
  }
}

// No two scales overlap, and all lie within the bytes of the form.
void ExpectScalesApart(const BlockLayoutRow& row, int64_t lines, int64_t extent) {
  const int64_t bytes = DTypeBytes(row.scale_dtype, 1);
  std::vector<int> hits(static_cast<size_t>(BlockScaleBytes(row.layout, lines, extent)));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t block = 0; block < BlocksOf(row, extent); ++block) {
      const int64_t at = BlockScaleOffset(row.layout, line, block, lines, extent);
      ASSERT_EQ(at % bytes, 0) << row.name;
      for (int64_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(++hits.at(static_cast<size_t>(at + i)), 1) << row.name;
      }
    }
  }
  EXPECT_EQ(hits.size() % 16, 0U) << row.name << ": what follows would not be aligned";
}

TEST(BlockLayouts, Scales_LieApartWithinTheirBytes) {
  for (const BlockLayoutRow& row : kBlockLayouts) {
    for (const int64_t lines : {1, 32, 129, 200}) {
      for (const int64_t extent : {32, 96, 128, 672}) {
        ExpectScalesApart(row, lines, extent);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::formats
