#include "common/plot/svg.h"

#include <cmath>
#include <string>
#include <vector>

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

TEST(Axes, OfAnyValues_HaveNamesAndTheirOwnNumbers) {
  const std::string axes =
      Panel({10, 20, 100, 50}, Panel::Scales{{{0, 2}, "time, hours"}, {{1, 100}, "cost, <", true}})
          .Axes("");
  EXPECT_THAT(axes, HasSubstr(">time, hours</text>"));
  EXPECT_THAT(axes, HasSubstr(">cost, &lt;</text>"));
  EXPECT_THAT(axes, HasSubstr(">0.5</text>"));
  EXPECT_THAT(axes, HasSubstr("y1=\"45.0\" y2=\"45.0\"")) << "10 is half way from 1 to 100";
  for (const char* number : {">1</", ">2</", ">5</", ">10</", ">20</", ">50</", ">100</"}) {
    EXPECT_THAT(axes, HasSubstr(number));
  }
}

TEST(AxisFor, TenTimes_IsLogarithmicAndLessIsFromZero) {
  struct Row {
    std::vector<double> values;
    bool logarithmic;
    double low, high;
  };
  for (const Row& row : {Row{{2, 19}, false, 0, 20.9}, Row{{20, 2}, true, 2 / 1.3, 26},
                         Row{{3}, false, 0, 3.3}, Row{{}, false, 0, 1}}) {
    const Axis axis = AxisFor(row.values, "");
    EXPECT_EQ(axis.logarithmic, row.logarithmic);
    EXPECT_NEAR(axis.range.low, row.low, 1e-9);
    EXPECT_NEAR(axis.range.high, row.high, 1e-9);
  }
}

TEST(Axes, ManyDecades_HaveNumbersThatFit) {
  const std::string axes =
      Panel({0, 0, 100, 50}, Panel::Scales{{{0.01, 1e6}, "", true}, {{0, 1}}}).Axes("");
  EXPECT_THAT(axes, HasSubstr(">0.01</text>"));
  EXPECT_THAT(axes, HasSubstr(">100000</text>"));
  EXPECT_THAT(axes, testing::Not(HasSubstr(">200000</text>")));
}

TEST(Labels, NoneCoversAnother_AndThoseWithoutRoomAreLeftOut) {
  const Panel panel({0, 0, 400, 200}, Panel::Scales{{{0, 400}}, {{0, 200}}});
  EXPECT_THAT(panel.Labels({{100, 100}}, {"a<b"}), HasSubstr("text-anchor=\"start\""));
  EXPECT_THAT(panel.Labels({{100, 100}}, {"a<b"}), HasSubstr(">a&lt;b</text>"));
  EXPECT_THAT(panel.Labels({{390, 100}}, {"name"}), HasSubstr("text-anchor=\"end\""))
      << "not beyond the frame";
  // Nine points in one place: one name on each side of it.
  const std::vector<Point> points(9, {200, 100});
  const std::vector<std::string> names = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"};
  const std::string labels = panel.Labels(points, names);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(labels.find(">" + names[i] + "<") != std::string::npos, i < 4) << i;
  }
}

TEST(Dot, SaysItsTitle) {
  const std::string dot = Small().Dot({5, 10}, "red", "x & y");
  EXPECT_THAT(dot, HasSubstr("cx=\"110.0\" cy=\"20.0\""));
  EXPECT_THAT(dot, HasSubstr("<title>x &amp; y</title>"));
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
