#include "jobctl/views/jobs/feasibility_view.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

spec::Feasibility Plan(const std::string& gpu, spec::Verdict verdict, double hours, double rent) {
  spec::Feasibility f;
  f.job = "a<b";
  f.gpu = gpu;
  f.verdict = verdict;
  f.memory = {{"weights", 1'000'000'000}, {"CUDA and its libraries", 500'000'000}};
  f.total_bytes = 1'500'000'000;
  f.device_bytes = 2'000'000'000;
  f.recompute = "none";
  f.micro_batch = 4;
  f.tok_s = 1e5;
  f.tokens = 1e5 * 3600 * hours;
  f.seconds = 3600 * hours;
  f.time.seconds = 0.5;
  f.time.watts = 400;
  f.joules = 400 * f.seconds;
  f.rent_cost = rent;
  f.confidence = "nothing measured on this GPU: from the data sheet";
  return f;
}

std::vector<spec::Feasibility> Plans() {
  return {Plan("slow", spec::Verdict::kYes, 20, 4), Plan("none", spec::Verdict::kNo, 1, 1),
          Plan("fast", spec::Verdict::kYesWithChanges, 5, 8)};
}

std::vector<std::string> Names(const std::vector<spec::Feasibility>& plans) {
  std::vector<std::string> names;
  for (const spec::Feasibility& f : plans) {
    names.push_back(f.gpu);
  }
  return names;
}

TEST(SortPlansTest, WhatCannotBeDone_ComesLast) {
  std::vector<spec::Feasibility> plans = Plans();
  SortPlans("hours", plans);
  EXPECT_EQ(Names(plans), (std::vector<std::string>{"fast", "slow", "none"}));
  SortPlans("cost", plans);
  EXPECT_EQ(Names(plans), (std::vector<std::string>{"slow", "fast", "none"}));
  SortPlans("name", plans);
  EXPECT_EQ(Names(plans), (std::vector<std::string>{"fast", "none", "slow"}));
}

TEST(PlanTableTest, ARowForEachGpu) {
  const std::string table = PlanTable(Plans(), {}, 0);
  EXPECT_THAT(table, HasSubstr("YES WITH CHANGES"));
  EXPECT_THAT(table, HasSubstr("$8.000"));
  EXPECT_THAT(table, HasSubstr("data sheet"));
}

TEST(PlanJsonTest, IsParsedAndNullWhereNotKnown) {
  std::vector<spec::Feasibility> plans = Plans();
  plans[1].time.unknown = "no rate";
  const nlohmann::json json = nlohmann::json::parse(PlanJson(plans));
  EXPECT_EQ(json["schema"], "hearth.plan/v1");
  ASSERT_EQ(json["plans"].size(), 3U);
  EXPECT_EQ(json["plans"][0]["verdict"], "YES");
  EXPECT_EQ(json["plans"][0]["time"]["tok_s"], 1e5);
  EXPECT_TRUE(json["plans"][1]["time"]["tok_s"].is_null());
  EXPECT_TRUE(json["plans"][0]["power_cost"].is_null());
  EXPECT_EQ(json["plans"][0]["memory"]["parts"].size(), 2U);
}

TEST(LargestTableTest, HasAColumnForEachFormat_AndOneGpuARow) {
  const spec::FamilyModel model = {
      .layers = 12, .hidden = 768, .parameters = 100'000'000, .total_bytes = int64_t{8} << 30};
  const std::vector<spec::FormatFamily> families = {
      {{"adamw", "fp32", "fp32", ""}, {model}},
      {{"adamw", "int8", "none", ""}, {model}},
      {{"muon", "int8", "fp32", ""}, {model}, "memory_tier: 1"}};
  const spec::GpuRow* const gpu = *spec::GpuByName("RTX 5090");
  const std::string two = LargestTable(families, {gpu, *spec::GpuByName("H200")}, 1, 0);
  EXPECT_THAT(two, HasSubstr("ADAMW+INT8+NO-MASTERS"));
  EXPECT_THAT(two, HasSubstr("MEMORY_TIER: 1"));
  EXPECT_THAT(two, HasSubstr("H200"));
  const std::string one = LargestOfGpu(families, *gpu, 1, 0);
  EXPECT_THAT(one, HasSubstr("adamw, state int8, no masters"));
  EXPECT_THAT(one, HasSubstr("RTX 5090"));
  EXPECT_THAT(one, HasSubstr("100M"));
  EXPECT_THAT(one, HasSubstr("13.6B"));
  EXPECT_THAT(one, Not(HasSubstr("H200")));
}

TEST(LargestJsonTest, NamesTheLargestModelAndTheNext) {
  const std::vector<spec::FormatFamily> families = {
      {{"muon", "int8", "none", ""},
       {{.layers = 12, .hidden = 768, .heads = 12, .parameters = 5, .total_bytes = 8'000'000'000},
        {.layers = 99, .hidden = 1024, .parameters = 6, .total_bytes = 80'000'000'000}},
       "memory_tier: 1"}};
  const nlohmann::json json = nlohmann::json::parse(
      LargestJson(families, {*spec::GpuByName("RTX 5090"), *spec::GpuByName("H200")}));
  EXPECT_EQ(json["schema"], "hearth.largest/v1");
  ASSERT_EQ(json["gpus"].size(), 2U);
  EXPECT_EQ(json["gpus"][0]["gpu"], "RTX 5090");
  const nlohmann::json& row = json["gpus"][0]["formats"][0];
  EXPECT_EQ(row["tier"], "memory_tier: 1");
  EXPECT_EQ(row["largest"]["heads"], 12);
  EXPECT_EQ(row["largest"]["total_bytes"], 8'000'000'000);
  EXPECT_EQ(row["too_large"]["layers"], 99);
  EXPECT_EQ(json["gpus"][1]["formats"][0]["largest"]["layers"], 99);
  EXPECT_TRUE(json["gpus"][1]["formats"][0]["too_large"].is_null());
}

TEST(PlanHtmlTest, HasThePictureWithoutWhatCannotBeDone_AndEscapesNames) {
  const std::string html = PlanHtml(Plans(), {});
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("cost in $ against time in hours"));
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  EXPECT_THAT(html, Not(HasSubstr("a<b")));
  const std::string picture =
      html.substr(html.find("<svg"), html.find("</svg>") - html.find("<svg"));
  EXPECT_THAT(picture, HasSubstr("<title>fast</title>"));
  EXPECT_THAT(picture, Not(HasSubstr("none<")));
}

}  // namespace
}  // namespace hearth::jobctl
