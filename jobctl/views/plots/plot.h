// Line plots in text: braille dots (2 x 4 a character) or, for several series without colour or a
// terminal without UTF-8, one mark a character.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hearth::jobctl {

struct PlotSeries {
  std::string name;  // for the legend
  // Both have the same length, x ascending. A y that is not finite parts the line.
  std::vector<double> x;
  std::vector<double> y;
};

struct PlotOptions {
  // Characters of the whole plot with title, axes and legend; at least 24 x 6 is drawn.
  int width = 80;
  int height = 20;
  bool color = false;  // ANSI colours, one a series
  bool utf8 = true;    // braille and box drawing, else ASCII
  // How the first and the last x are written; empty = as a plain number.
  std::function<std::string(double)> x_text;
};

// Title, plot with axis labels (lowest, middle and highest value; first and last x), and a legend
// line when there are several series. Lines end in '\n' and have no trailing blanks. "TITLE: no
// values" when no y is finite.
std::string RenderPlot(const std::string& title,
                       const std::vector<PlotSeries>& series,
                       const PlotOptions& options);

}  // namespace hearth::jobctl
