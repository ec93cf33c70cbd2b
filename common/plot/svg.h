// Curves over steps, and points of two values, as SVG: a picture holds panels, a panel has axes,
// lines, rings, dots and names. Lengths are in the units of the picture's view box; y grows
// downwards.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hearth::plot {

struct Point {
  double x = 0;  // of a curve: a step
  double y = 0;
};
using Curve = std::vector<Point>;  // x ascending

struct Range {
  double low = 0;
  double high = 1;  // > low where something is drawn
};

struct Axis {
  Range range;
  std::string name = {};     // beside it, with the unit; empty: none
  bool logarithmic = false;  // the range is above 0
  bool whole = false;        // has numbers at whole values alone
};

// An axis for these values above 0, with room around them: logarithmic if the largest is ten times
// the smallest, else from 0 on.
Axis AxisFor(const std::vector<double>& values, std::string name);

// What Widen starts from.
inline constexpr Range kNothing = {__builtin_huge_val(), -__builtin_huge_val()};
// Their lightness is medium, so that they stand out from white and from black.
inline constexpr const char* kColours[] = {"#3b82c4", "#d9822b", "#3f9f5f", "#b65fb0",
                                           "#c0504d", "#8a8a2f", "#2a9d9d"};

// Makes room for the finite values after step `after`.
void Widen(const Curve& curve, double after, Range& range);
// With a margin above and below; {0, 1} if there are no values.
Range WithMargin(Range range);

// The colour of curve number i.
const char* ColourOf(size_t i);

class Panel {
 public:
  struct Place {
    double left, top, width, height;
  };
  // For curves: x_range is of steps, so of whole numbers.
  Panel(const Place& place, Range x_range, Range y_range);
  struct Scales {
    Axis x, y;
  };
  Panel(const Place& place, Scales scales);

  // Frame, grid and round numbers beside it, names of axes that have one; `title` above the frame
  // unless it is empty.
  std::string Axes(const std::string& title) const;
  // "step" below the numbers of the steps.
  std::string StepName() const;
  // What is drawn there is cut off at the frame. No other panel of the document has its `id`.
  std::string Framed(const std::string& id, const std::string& drawn) const;
  // Values that are not finite part the line; a point without neighbours is a dot. Long curves are
  // drawn through about a thousand of their points.
  std::string Line(const Curve& curve, const char* colour) const;
  // A ring for each finite value.
  std::string Rings(const Curve& curve, const char* colour) const;
  // A dot that says `title` beside the pointer.
  std::string Dot(const Point& point, const char* colour, const std::string& title) const;
  // The name of each point beside its dot, in the colour of its number. A name that would cover
  // another one or a dot on every side is left out: the first points come first.
  std::string Labels(const std::vector<Point>& points, const std::vector<std::string>& names) const;
  // A bar from each point of `low` to that of `high`, which has the same steps; none where the two
  // are one or not finite.
  std::string Bars(const Curve& low, const Curve& high, const char* colour) const;
  // Where the line with this value ends, for Names.
  double HeightOf(double value) const;
  // To the right of the frame: each name at its height and in the colour of its curve, moved apart
  // where they would cover one another.
  std::string Names(std::vector<std::pair<double, size_t>> heights_and_curves,
                    const std::vector<std::string>& names) const;

 private:
  double X(double value) const;
  double Y(double value) const;
  std::string YNumbers() const;
  std::string XNumbers() const;
  std::string AxisNames() const;

  Place place_;
  Axis x_;
  Axis y_;
};

// The whole: `panels` as made by Panel. With a `heading` it is a file of its own with the title
// above the panels; without one it stands in a page, and refers to nothing outside itself.
std::string Picture(
    double width, double height, const std::string& title, bool heading, const std::string& panels);

}  // namespace hearth::plot
