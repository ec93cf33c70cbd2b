#include "jobctl/views/plots/plot.h"

#include <cmath>

#include "gtest/gtest.h"
#include "jobctl/views/plots/metrics_plot.h"

namespace hearth::jobctl {
namespace {

PlotOptions Small() {
  PlotOptions options;
  options.width = 30;
  options.height = 8;
  return options;
}

const PlotSeries kUp = {"up", {1, 2, 3, 4}, {1, 2, 3, 4}};
const PlotSeries kDown = {"down", {1, 2, 3, 4}, {4, 3, 2, 1}};

TEST(RenderPlot, FallingLine_HasAxesAndLabels) {
  EXPECT_EQ(RenderPlot("loss of a by step",
                       {{"a", {1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1}}}, Small()),
            "loss of a by step\n"
            "  8 ┤⠉⠒⠤⣀⡀\n"
            "    │    ⠈⠉⠑⠒⠤⣀\n"
            "4.5 ┤          ⠉⠑⠢⢄⣀\n"
            "    │               ⠉⠒⠤⢄⣀⡀\n"
            "  1 ┤                    ⠈⠉⠒⠤⣀\n"
            "    └─────────────────────────\n"
            "     1                       8\n");
}

TEST(RenderPlot, NotANumber_PartsTheLine) {
  const double nan = std::nan("");
  EXPECT_EQ(RenderPlot("gap", {{"a", {1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, nan, 3, 2, 1}}}, Small()),
            "gap\n"
            "3 ┤       ⢀⠔⠁       ⠈⠢⡀\n"
            "  │      ⡠⠃           ⠈⢆\n"
            "2 ┤    ⡠⠊               ⠑⢄\n"
            "  │  ⡠⠊                   ⠑⢄\n"
            "1 ┤⡠⠊                       ⠑⢄\n"
            "  └───────────────────────────\n"
            "   1                         7\n");
  EXPECT_EQ(RenderPlot("none", {{"a", {1, 2}, {nan, HUGE_VAL}}}, Small()), "none: no values\n");
  EXPECT_EQ(RenderPlot("none", {}, Small()), "none: no values\n");
}

TEST(RenderPlot, OnePoint_IsADotInTheMiddle) {
  EXPECT_EQ(RenderPlot("one", {{"a", {7}, {10.25}}}, Small()),
            "one\n"
            "      │\n"
            "      │\n"
            "10.25 ┤           ⠠\n"
            "      │\n"
            "      │\n"
            "      └───────────────────────\n"
            "       7\n");
}

TEST(RenderPlot, SeveralWithoutColor_GetMarksAndALegend) {
  EXPECT_EQ(RenderPlot("two", {kUp, kDown}, Small()),
            "two\n"
            "  4 ┤++++                *****\n"
            "2.5 ┤    ++++++++++++++++\n"
            "  1 ┤****                +++++\n"
            "    └─────────────────────────\n"
            "     1                       4\n"
            "  * up  + down\n");
}

TEST(RenderPlot, SeveralWithColor_GetOneEach) {
  PlotOptions options = Small();
  options.color = true;
  EXPECT_EQ(RenderPlot("two", {kUp, kDown}, options),
            "two\n"
            "  4 ┤\033[33m⠉⠒⠒⠤⠤⣀⣀\033[0m          \033[36m⢀⣀⡠⠤⠔⠒⠊⠉\033[0m\n"
            "2.5 ┤       \033[33m⣉⣉⡱⠶⠶⠶⠶⠶⢎⣉⡁\033[0m\n"
            "  1 ┤\033[36m⣀⠤⠤⠒⠒⠉⠉\033[0m          \033[33m⠈⠉⠑⠒⠢⠤⢄⣀\033[0m\n"
            "    └─────────────────────────\n"
            "     1                       4\n"
            "  \033[36m──\033[0m up  \033[33m──\033[0m down\n");
}

TEST(RenderPlot, WithoutUtf8AndANarrowRange_IsAsciiWithEnoughDigits) {
  PlotOptions options = Small();
  options.utf8 = false;
  EXPECT_EQ(RenderPlot("tok_s", {{"a", {1, 1000000}, {196000, 196010}}}, options),
            "tok_s\n"
            "196010 +                   ***\n"
            "       |              *****\n"
            "196005 +        ******\n"
            "       |   *****\n"
            "196000 +***\n"
            "       +----------------------\n"
            "        1              1000000\n");
}

TEST(ParsePlotMetrics, Names_ShortOrLongOrRefused) {
  const auto found = ParsePlotMetrics("loss,tokens_per_second");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[1]->option().plot(), "tok_s");
  EXPECT_FALSE(ParsePlotMetrics(",").ok());
  EXPECT_NE(ParsePlotMetrics("bogus").status().message().find("loss, val_loss"),
            absl::string_view::npos);
}

const PlotAxis& ByStep() {
  return *FindPlotAxis("step");
}

TEST(SeriesOf, SparseMetric_LeavesStepsOut) {
  std::vector<v1::StepReport> steps(3);
  for (int i = 0; i < 3; ++i) {
    steps[static_cast<size_t>(i)].set_step(i + 1);
  }
  steps[1].set_validation_loss(2.5);
  const PlotSeries sparse = SeriesOf(*ParsePlotMetrics("val_loss")->front(), ByStep(), "a", steps);
  EXPECT_EQ(sparse.x, std::vector<double>({2}));
  EXPECT_TRUE(SeriesOf(*ParsePlotMetrics("energy")->front(), ByStep(), "a", steps).x.empty());
  EXPECT_EQ(SeriesOf(*ParsePlotMetrics("power")->front(), ByStep(), "a", steps).x.size(), 3U);
}

TEST(SeriesOf, Axis_IsStepTokensOrTimeSinceTheFirstStep) {
  std::vector<v1::StepReport> steps(3);
  for (int i = 0; i < 3; ++i) {
    v1::StepReport& step = steps[static_cast<size_t>(i)];
    step.set_step(i + 1);
    step.set_tokens(int64_t{8192} * (i + 1));
    step.set_loss(4 - i);
    if (i != 1) {  // a step of a version that did not say when it ended
      step.mutable_time()->set_seconds(1000 + 90 * i);
    }
  }
  const auto x = [&](const char* axis) {
    return SeriesOf(metrics::StepMetricOf("loss"), *FindPlotAxis(axis), "a", steps).x;
  };
  EXPECT_EQ(x("step"), std::vector<double>({1, 2, 3}));
  EXPECT_EQ(x("tokens"), std::vector<double>({8192, 16384, 24576}));
  EXPECT_EQ(x("time"), std::vector<double>({0, 180}));
  EXPECT_EQ(FindPlotAxis("epoch"), nullptr);
  EXPECT_EQ(PlotAxisNames(", "), "step, tokens, time");

  PlotOptions options = Small();
  options.x_text = FindPlotAxis("tokens")->text;
  const std::string plot = RenderPlot("p", {{"a", {8192, 24576}, {2, 1}}}, options);
  EXPECT_NE(plot.find(" 8.19k"), std::string::npos) << plot;
  EXPECT_NE(plot.find(" 24.6k\n"), std::string::npos) << plot;
}

TEST(EntriesOf, Sources_ALineEach) {
  std::vector<v1::StepReport> steps(3);
  for (int i = 0; i < 3; ++i) {
    v1::StepReport& step = steps[static_cast<size_t>(i)];
    step.set_step(i + 1);
    step.set_loss(9);
    for (const char* name : {"/web", "/code"}) {
      v1::SourceReport& source = *step.add_sources();
      source.set_source(name);
      source.set_passes(0.5 * (i + 1));
      if (i != 1 || source.source() == "/web") {
        source.set_loss(source.source() == "/web" ? 4 - i : 2 - i);
      }
    }
  }
  const auto rows = ParsePlotMetrics("source_loss,source_passes,loss");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[2], &metrics::StepMetricOf("loss")) << "not a field of the entries";
  const std::vector<PlotSeries> lines = EntriesOf(*(*rows)[0], ByStep(), "", steps);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].name, "/code");
  EXPECT_EQ(lines[0].x, std::vector<double>({1, 3})) << "step 2 had none of it";
  EXPECT_EQ(lines[0].y, std::vector<double>({2, 0}));
  EXPECT_EQ(lines[1].y, std::vector<double>({4, 3, 2}));
  EXPECT_EQ(EntriesOf(*(*rows)[1], ByStep(), "a", steps)[1].name, "a /web");

  const PlotRequest request = {*rows, 1, &ByStep(), 1};
  const std::string plots = RenderPlots({"a"}, {steps}, request, Small());
  EXPECT_EQ(plots.find("source_loss of a by step\n"), 0u) << plots;
  EXPECT_NE(plots.find("* /code  + /web\n"), std::string::npos) << plots;
  EXPECT_EQ(RenderPlots({"a"}, {{}}, {{(*rows)[0]}, 1, &ByStep(), 1}, Small()),
            "source_loss of a by step: no values\n");
}

TEST(Smooth, Points_AreMeansOfThoseBefore_AndHolesStay) {
  const double nan = std::nan("");
  PlotSeries series = {"a", {1, 2, 3, 4, 5, 6}, {1, 3, nan, 5, 7, 9}};
  PlotSeries same = series;
  Smooth(1, same);
  EXPECT_EQ(same.y[1], 3);
  Smooth(3, series);
  EXPECT_TRUE(std::isnan(series.y[2]));
  EXPECT_EQ(std::vector<double>({series.y[0], series.y[1], series.y[3], series.y[4], series.y[5]}),
            std::vector<double>({1, 2, 4, 6, 7}));
  PlotSeries large = {"a", {1, 2, 3}, {6, 2, 1}};
  Smooth(1000, large);
  EXPECT_EQ(large.y, std::vector<double>({6, 4, 3}));
}

}  // namespace
}  // namespace hearth::jobctl
