// The picture of a comparison: two panels over the same steps.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/plot/svg.h"
#include "worker/trainer/cli/compare/compare.h"

namespace hearth::trainer {
namespace {

using plot::Curve;
using plot::Panel;
using plot::Point;
using plot::Range;

constexpr double kWidth = 900;
constexpr double kHeight = 620;
constexpr double kLeft = 64;
constexpr double kRight = 150;  // room for the names of the curves
constexpr double kPanelWidth = kWidth - kLeft - kRight;

Curve CurveOf(const std::vector<LossPoint>& points) {
  Curve curve;
  for (const LossPoint& point : points) {
    curve.push_back({static_cast<double>(point.step), point.loss});
  }
  return curve;
}

// Means over windows of 2 half + 1 steps, cut off at the ends. Losses that are not finite are left
// out, and so are their steps.
Curve Smoothed(const Curve& curve, size_t half) {
  Curve finite;
  std::copy_if(curve.begin(), curve.end(), std::back_inserter(finite),
               [](const Point& point) { return std::isfinite(point.y); });
  std::vector<double> sums = {0};
  for (const Point& point : finite) {
    sums.push_back(sums.back() + point.y);
  }
  Curve out;
  for (size_t i = 0; i < finite.size(); ++i) {
    const size_t low = i < half ? 0 : i - half;
    const size_t high = std::min(finite.size(), i + half + 1);
    out.push_back({finite[i].x, (sums[high] - sums[low]) / static_cast<double>(high - low)});
  }
  return out;
}

// Percent above the reference, at the steps that both have.
Curve GapCurve(const Curve& curve, const Curve& reference) {
  std::map<double, double> at;
  for (const Point& point : reference) {
    at[point.x] = point.y;
  }
  Curve out;
  for (const Point& point : curve) {
    const auto base = at.find(point.x);
    if (base != at.end() && base->second > 0) {
      out.push_back({point.x, 100 * (point.y / base->second - 1)});
    }
  }
  return out;
}

struct Drawn {
  int64_t steps = 0;
  size_t half = 1;  // of the window of smoothing
  std::vector<std::string> names;
  std::vector<Curve> training, held_out;

  // The fall at the beginning does not set the scale.
  double skipped() const {
    const int64_t first = steps / 10;
    return static_cast<double>(first);
  }
  Range x() const { return {1, static_cast<double>(std::max<int64_t>(2, steps))}; }
};

std::string LossPanel(const Drawn& drawn) {
  Range y = plot::kNothing;
  std::vector<Curve> training;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    training.push_back(Smoothed(drawn.training[i], drawn.half));
    Widen(training[i], drawn.skipped(), y);
    Widen(drawn.held_out[i], drawn.skipped(), y);
  }
  const Panel panel({kLeft, 56, kPanelWidth, 320}, drawn.x(), plot::WithMargin(y));
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    const char* const colour = plot::ColourOf(i);
    absl::StrAppend(&lines, panel.Line(training[i], colour),
                    panel.Rings(drawn.held_out[i], colour));
    if (!training[i].empty()) {
      heights.emplace_back(panel.HeightOf(training[i].back().y), i);
    }
  }
  const std::string title = absl::StrCat("loss (nats per token): lines training, mean of ",
                                         2 * drawn.half + 1, " steps; rings held out");
  return absl::StrCat(panel.Axes(title), panel.Framed("loss", lines),
                      panel.Names(std::move(heights), drawn.names));
}

// Smoothed over the steps that both have, so that the means at the end are over the same ones.
Curve SmoothedGap(const Drawn& drawn, size_t i) {
  Curve reference = drawn.training[0];
  const double last = drawn.training[i].empty() ? 0 : drawn.training[i].back().x;
  while (!reference.empty() && reference.back().x > last) {
    reference.pop_back();
  }
  return GapCurve(Smoothed(drawn.training[i], drawn.half), Smoothed(reference, drawn.half));
}

std::string GapPanel(const Drawn& drawn) {
  std::vector<Curve> training, held_out;
  double limit = 0.1;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    training.push_back(SmoothedGap(drawn, i));
    held_out.push_back(GapCurve(drawn.held_out[i], drawn.held_out[0]));
    Range range = {0, 0};
    Widen(training.back(), drawn.skipped(), range);
    Widen(held_out.back(), drawn.skipped(), range);
    limit = std::max({limit, 1.1 * range.high, -1.1 * range.low});
  }
  const Panel panel({kLeft, 440, kPanelWidth, 130}, drawn.x(), {-limit, limit});
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 1; i < drawn.names.size(); ++i) {
    const char* const colour = plot::ColourOf(i);
    absl::StrAppend(&lines, panel.Line(training[i], colour), panel.Rings(held_out[i], colour));
    if (!training[i].empty()) {
      heights.emplace_back(panel.HeightOf(training[i].back().y), i);
    }
  }
  const std::string title = absl::StrCat("gap to ", drawn.names[0], " in percent");
  return absl::StrCat(panel.Axes(title), panel.StepName(), panel.Framed("gap", lines),
                      panel.Names(std::move(heights), drawn.names));
}

}  // namespace

std::string ComparePicture(const Comparison& comparison) {
  const std::string title = absl::StrCat(comparison.job, " on ", comparison.device, ", by recipe");
  Drawn drawn;
  drawn.steps = comparison.steps;
  drawn.half = std::clamp<size_t>(static_cast<size_t>(comparison.steps) / 40, 1, 25);
  for (const ComparedRun& run : comparison.runs) {
    drawn.names.push_back(run.ok() ? run.recipe : absl::StrCat(run.recipe, " (", run.state, ")"));
    drawn.training.push_back(CurveOf(run.training));
    drawn.held_out.push_back(CurveOf(run.held_out));
  }
  return plot::Picture(kWidth, kHeight, title, /*heading=*/true,
                       drawn.names.empty() ? "" : LossPanel(drawn) + GapPanel(drawn));
}

}  // namespace hearth::trainer
