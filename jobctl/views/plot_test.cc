#include "jobctl/views/plot.h"

#include <cmath>

#include "gtest/gtest.h"
#include "jobctl/views/metrics_plot.h"

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

TEST(SeriesOf, SparseMetric_LeavesStepsOut) {
  std::vector<v1::StepReport> steps(3);
  for (int i = 0; i < 3; ++i) {
    steps[static_cast<size_t>(i)].set_step(i + 1);
  }
  steps[1].set_validation_loss(2.5);
  const PlotSeries sparse = SeriesOf(*ParsePlotMetrics("val_loss")->front(), "a", steps);
  EXPECT_EQ(sparse.x, std::vector<double>({2}));
  EXPECT_TRUE(SeriesOf(*ParsePlotMetrics("energy")->front(), "a", steps).x.empty());
  EXPECT_EQ(SeriesOf(*ParsePlotMetrics("power")->front(), "a", steps).x.size(), 3U);
}

}  // namespace
}  // namespace hearth::jobctl
