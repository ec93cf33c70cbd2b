#include "jobctl/views/jobs/feasibility_view.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jobctl/views/jobs/plan_columns.h"
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

// The picture of a page.
std::string PictureOf(const std::string& html) {
  const size_t begin = html.find("<svg");
  return begin == std::string::npos ? "" : html.substr(begin, html.find("</svg>") - begin);
}

TEST(PlanHtmlTest, HasThePictureWithoutWhatCannotBeDone_AndEscapesNames) {
  const std::string html = PlanHtml(Plans(), {});
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  EXPECT_THAT(html, Not(HasSubstr("a<b")));
  const std::string picture = PictureOf(html);
  EXPECT_THAT(picture, HasSubstr("<title>fast: YES WITH CHANGES, 5h00m, $8.000</title>"));
  EXPECT_THAT(picture, HasSubstr(">fast</text>"));
  EXPECT_THAT(picture, Not(HasSubstr("none<")));
  EXPECT_THAT(picture, Not(HasSubstr(">step</text>")));
}

// Axes say what they show, in a unit that suits the times, of the first cost that is known of all.
TEST(PlanHtmlTest, Axes_NameWhatTheyShow) {
  struct Row {
    double times;  // of the hours of Plans
    bool rent, power;
    const char *x, *y;
  };
  for (const Row& row : {
           Row{1, true, false, ", hours</text>", ">cost of renting, $</text>"},
           Row{0.05, true, true, ", minutes</text>", ">cost of renting, $</text>"},
           Row{100, false, true, ", days</text>", ">cost of power, $</text>"},
           Row{1, false, false, ", hours</text>", ">energy, kWh</text>"},
       }) {
    std::vector<spec::Feasibility> plans = Plans();
    for (spec::Feasibility& f : plans) {
      f.seconds *= row.times;
      f.rent_cost = row.rent ? f.rent_cost : std::nullopt;
      f.power_cost = row.power ? std::optional<double>(1) : std::nullopt;
    }
    const std::string picture = PictureOf(PlanHtml(plans, {}));
    EXPECT_THAT(picture, HasSubstr(row.x));
    EXPECT_THAT(picture, HasSubstr(" tokens, "));
    EXPECT_THAT(picture, HasSubstr(row.y));
  }
}

TEST(PlanHtmlTest, OfOneGpuOrWithoutATime_ThereIsNoPicture) {
  std::vector<spec::Feasibility> plans = Plans();
  EXPECT_EQ(PictureOf(PlanHtml({plans.front()}, {})), "");
  for (spec::Feasibility& f : plans) {
    f.time.unknown = "no rate";
  }
  EXPECT_EQ(PictureOf(PlanHtml(plans, {})), "");
}

// The script sorts by data-number; tests/integration/plan_page_test.py has a browser run it.
TEST(PlanHtmlTest, Cells_HaveTheNumbersThatTheScriptSortsBy) {
  std::vector<spec::Feasibility> plans = Plans();
  plans[1].time.unknown = "no rate";
  const std::string html = PlanHtml(plans, {});
  size_t numbers = 0;
  for (const PlanColumn& column : PlanColumns()) {
    const bool number = column.number != nullptr;
    numbers += number ? 1 : 0;
    EXPECT_THAT(html,
                HasSubstr(std::string("<th scope=\"col\"") +
                          (column.shows_number() ? " class=\"right\"" : "") +
                          (number ? " data-kind=\"number\">" : ">") + column.title + "</th>"));
  }
  EXPECT_EQ(numbers, PlanColumns().size() - 3) << "all but GPU, RECOMPUTE and BASIS";
  EXPECT_THAT(html, HasSubstr("<td class=\"right\" data-number=\"72000\">20h00m</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"right\" data-number=\"18000\">5h00m</td>"));
  EXPECT_THAT(html, HasSubstr("<td data-number=\"1\">YES WITH CHANGES</td>"));
  EXPECT_THAT(html, HasSubstr("<td data-number=\"2\">NO</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"right\">-</td>")) << "what is not known has no number";
  EXPECT_THAT(html, HasSubstr("document.querySelectorAll(\"table.sortable\")"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'")) << "nothing comes from the network";
  EXPECT_THAT(html, HasSubstr("color-scheme:light dark"));
}

}  // namespace
}  // namespace hearth::jobctl
