#include "common/spec/data/sample_tables.h"

#include <string>
#include <vector>

#include "common/base/table_rows.h"
#include "common/spec/fields/rows.h"
#include "common/spec/objective/objective_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAreArray;

// What the field may say.
std::vector<std::string> ValuesOf(int field_number) {
  const v1::FieldRow& row = RowOf(*v1::DataSpec::descriptor()->FindFieldByNumber(field_number));
  return {row.one_of().begin(), row.one_of().end()};
}

TEST(SampleTablesTest, Names_AreThoseThatTheFieldsTake) {
  EXPECT_THAT(ValuesOf(v1::DataSpec::kPackingFieldNumber),
              ElementsAreArray(ColumnOf(Packings(), &PackingRow::name)));
  EXPECT_THAT(ValuesOf(v1::DataSpec::kAttentionFieldNumber),
              ElementsAreArray(ColumnOf(Attentions(), &AttentionRow::name)));
}

TEST(SampleTablesTest, Objectives_NameRows) {
  for (const ObjectiveRow& row : Objectives()) {
    if (!row.trains) {
      continue;
    }
    const PackingRow* const packing = FindPacking(row.packing);
    ASSERT_NE(packing, nullptr) << row.name;
    EXPECT_FALSE(row.uses_loss_mask && packing->cuts_anywhere) << row.name;
    EXPECT_NE(FindRow(Attentions(), &AttentionRow::name, row.attention), nullptr) << row.name;
  }
}

TEST(SampleTablesTest, PackingOf_IsTheRowsAndElseConcat) {
  v1::DataSpec data;
  EXPECT_EQ(PackingOf(data), Packing::kConcat);
  for (const PackingRow& row : Packings()) {
    data.set_packing(std::string(row.name));
    EXPECT_EQ(PackingOf(data), row.packing) << row.name;
  }
}

TEST(SampleTablesTest, SeesOwnDocument_OnlyWithDocumentAttention) {
  v1::DataSpec data;
  EXPECT_FALSE(SeesOwnDocument(data));
  data.set_attention("causal");
  EXPECT_FALSE(SeesOwnDocument(data));
  data.set_attention("document");
  EXPECT_TRUE(SeesOwnDocument(data));
}

TEST(SampleTablesTest, ReportedSources_AreNoneOfOne_AndAtMostTheLimit) {
  v1::DataSpec data;
  EXPECT_EQ(ReportedSources(data), 0);
  data.add_train();
  EXPECT_EQ(ReportedSources(data), 0);
  data.add_train();
  EXPECT_EQ(ReportedSources(data), 2);
  while (data.train_size() <= kReportedSourcesMax) {
    data.add_train();
  }
  EXPECT_EQ(ReportedSources(data), kReportedSourcesMax);
}

}  // namespace
}  // namespace hearth::spec
