#include "common/dataset/report/mix_report.h"

#include <fstream>
#include <string>
#include <vector>

#include "common/dataset/mixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

class MixReportTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, size_t tokens) {
    const std::string path = dir_ + "/" + name;
    const std::vector<uint16_t> data(tokens, 7);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()), static_cast<int64_t>(2 * tokens));
    return path;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(MixReportTest, Shares_AreWhatTheMixtureDraws) {
  const std::string large = Write("large.bin", 100001);
  const std::string small = Write("small.bin", 1001);
  const auto report = MakeMixReport({{large, 3}, {small, 1}}, 100, 40050);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 400);
  ASSERT_EQ(report->rows.size(), 2U);
  EXPECT_DOUBLE_EQ(report->rows[0].share, 0.75);
  EXPECT_EQ(report->rows[0].drawn, 30000);
  EXPECT_DOUBLE_EQ(report->rows[0].epochs, 0.3);
  EXPECT_EQ(report->rows[1].drawn, 10000);
  EXPECT_DOUBLE_EQ(report->rows[1].epochs, 10);
  // Only the one beyond four passes.
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_THAT(report->warnings[0], HasSubstr(small + " is passed over 10.0 times"));
}

TEST_F(MixReportTest, FourPasses_AreNoWarning) {
  const std::string path = Write("d.bin", 1001);
  EXPECT_TRUE(MakeMixReport({{path, 1}}, 100, 4000)->warnings.empty());
  EXPECT_FALSE(MakeMixReport({{path, 1}}, 100, 4100)->warnings.empty());
  EXPECT_EQ(MakeMixReport({{path, 1}}, 100, 0)->samples, 10) << "what it has";
}

TEST_F(MixReportTest, SourceShorterThanASample_IsRefused) {
  const auto report = MakeMixReport({{Write("d.bin", 100), 1}}, 100, 0);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("fewer than one sample of 101"));
}

TEST(Mixture, SamplesOf_CountsWhatAtSays) {
  const Mixture mixture({5, 1, 0.0001});
  std::vector<int64_t> counts(3, 0);
  for (int64_t sample = 0; sample < 2 * Mixture::kPeriod + 77; ++sample) {
    const Mixture::Place place = mixture.At(sample);
    ASSERT_EQ(place.sample, counts[static_cast<size_t>(place.source)]++);
    if (sample % 9973 == 0) {
      for (int source = 0; source < 3; ++source) {
        ASSERT_EQ(mixture.SamplesOf(source, sample + 1), counts[static_cast<size_t>(source)]);
      }
    }
  }
  EXPECT_EQ(counts[2], 2) << "the least share is one sample a period";
}

}  // namespace
}  // namespace hearth::dataset
