// Curves over steps as SVG: a picture holds panels, a panel has axes, lines, rings and the names of
// its curves. Lengths are in the units of the picture's view box; y grows downwards.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hearth::plot {

struct Point {
  double x = 0;  // a step
  double y = 0;
};
using Curve = std::vector<Point>;  // x ascending

struct Range {
  double low = 0;
  double high = 1;  // > low where something is drawn
};

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
  // x_range is of whole numbers.
  Panel(const Place& place, Range x_range, Range y_range);

  // Frame, grid and round numbers beside it; `title` above the frame unless it is empty.
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
  double X(double step) const;
  double Y(double value) const;

  Place place_;
  Range x_range_;
  Range y_range_;
};

// The whole: `panels` as made by Panel. With a `heading` it is a file of its own with the title
// above the panels; without one it stands in a page, and refers to nothing outside itself.
std::string Picture(
    double width, double height, const std::string& title, bool heading, const std::string& panels);

}  // namespace hearth::plot
