#include "common/plot/svg.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::plot {
namespace {

using testing::HasSubstr;

Panel Small() {
  return Panel({10, 20, 100, 50}, {1, 5}, {0, 10});
}

TEST(Line, NotANumber_PartsIt_AndAPointAloneIsADot) {
  const std::string line = Small().Line({{1, 10}, {2, 0}, {3, NAN}, {5, 5}}, "red");
  EXPECT_THAT(line, HasSubstr("<polyline points=\"10.0,20.0 35.0,70.0\""));
  EXPECT_THAT(line, HasSubstr("<polyline points=\"110.0,45.0 110.0,45.0\""));
  EXPECT_EQ(Small().Line({}, "red"), "");
}

TEST(Line, LongCurve_KeepsItsLastPoint) {
  Curve curve;
  for (int i = 1; i <= 5500; ++i) {
    curve.push_back({static_cast<double>(i), 1});
  }
  const std::string line = Panel({0, 0, 100, 50}, {1, 5500}, {0, 2}).Line(curve, "red");
  EXPECT_THAT(line, HasSubstr(" 100.0,25.0\""));
  EXPECT_LT(line.size(), 20000U);
}

TEST(Bars, EachIsFromLowToHigh_AndNoneWhereTheyAreOne) {
  const std::string bars =
      Small().Bars({{1, 2}, {2, 5}, {3, NAN}}, {{1, 4}, {2, 5}, {3, 6}}, "red");
  EXPECT_EQ(bars,
            "<path d=\"M10.0 50.0V60.0M7.0 50.0H13.0M7.0 60.0H13.0\" stroke=\"red\" "
            "stroke-width=\"1.2\"/>\n");
}

TEST(Axes, Numbers_AreRoundAndStepsWhole) {
  const std::string axes = Small().Axes("a < b");
  EXPECT_THAT(axes, HasSubstr(">a &lt; b</text>"));
  EXPECT_THAT(axes, HasSubstr(">4</text>"));
  EXPECT_THAT(axes, testing::Not(HasSubstr(">1.5</text>")));
}

TEST(Names, SameHeight_AreMovedApart) {
  EXPECT_THAT(Small().Names({{30, 0}, {30, 1}}, {"one", "two"}),
              testing::AllOf(HasSubstr("y=\"34.0\""), HasSubstr("y=\"49.0\"")));
}

TEST(WithMargin, Nothing_IsZeroToOne) {
  Range range = kNothing;
  Widen({{1, 3}, {2, NAN}}, 1, range);
  EXPECT_EQ(WithMargin(range).high, 1);
  Widen({{2, 3}, {3, 5}}, 1, range);
  EXPECT_NEAR(WithMargin(range).low, 2.92, 1e-9);
}

}  // namespace
}  // namespace hearth::plot
