// The picture of a comparison: two panels over the same steps.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/plot/svg.h"
#include "worker/trainer/cli/compare/compare.h"
#include "worker/trainer/cli/compare/compare_rows.h"

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

// A run, and the one it is compared with; null: itself, or there is none.
struct Pair {
  const ComparedRun* run = nullptr;
  const ComparedRun* reference = nullptr;
};

// The mean of the curves that have a step, and its standard error.
struct MeanCurve {
  Curve mean;
  Curve error;  // 0 where one curve has the step
};

MeanCurve MeanOfCurves(const std::vector<Curve>& curves) {
  std::map<double, std::vector<double>> at;
  for (const Curve& curve : curves) {
    for (const Point& point : curve) {
      at[point.x].push_back(point.y);
    }
  }
  MeanCurve out;
  for (const auto& [step, values] : at) {
    if (const std::optional<MeanOfSeeds> mean = MeanOf(values); mean.has_value()) {
      out.mean.push_back({step, mean->mean});
      out.error.push_back({step, mean->error});
    }
  }
  return out;
}

struct Drawn {
  int64_t steps = 0;
  size_t half = 1;  // of the window of smoothing
  std::vector<std::string> names;
  std::vector<std::vector<Pair>> rows;  // by name, the runs of each seed
  std::string reference;

  // The fall at the beginning does not set the scale.
  double skipped() const {
    const int64_t first = steps / 10;
    return static_cast<double>(first);
  }
  Range x() const { return {1, static_cast<double>(std::max<int64_t>(2, steps))}; }
};

// A curve of each seed's run in the row, as `of` makes it of a pair.
template <typename Of>
MeanCurve MeanOfRow(const std::vector<Pair>& row, const Of& of) {
  std::vector<Curve> curves;
  for (const Pair& pair : row) {
    curves.push_back(of(pair));
  }
  return MeanOfCurves(curves);
}

std::string LossPanel(const Drawn& drawn) {
  Range y = plot::kNothing;
  std::vector<Curve> training, held_out;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    const std::vector<Pair>& row = drawn.rows[i];
    training.push_back(MeanOfRow(row, [&](const Pair& pair) {
                         return Smoothed(CurveOf(pair.run->training), drawn.half);
                       }).mean);
    held_out.push_back(
        MeanOfRow(row, [](const Pair& pair) { return CurveOf(pair.run->held_out); }).mean);
    Widen(training[i], drawn.skipped(), y);
    Widen(held_out[i], drawn.skipped(), y);
  }
  const Panel panel({kLeft, 56, kPanelWidth, 320}, drawn.x(), plot::WithMargin(y));
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    const char* const colour = plot::ColourOf(i);
    absl::StrAppend(&lines, panel.Line(training[i], colour), panel.Rings(held_out[i], colour));
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
Curve SmoothedGap(const Pair& pair, size_t half) {
  if (pair.reference == nullptr) {
    return {};
  }
  const Curve training = CurveOf(pair.run->training);
  Curve reference = CurveOf(pair.reference->training);
  const double last = training.empty() ? 0 : training.back().x;
  while (!reference.empty() && reference.back().x > last) {
    reference.pop_back();
  }
  return GapCurve(Smoothed(training, half), Smoothed(reference, half));
}

Curve HeldOutGap(const Pair& pair) {
  return pair.reference == nullptr
             ? Curve()
             : GapCurve(CurveOf(pair.run->held_out), CurveOf(pair.reference->held_out));
}

// The curve moved by so many times its error.
Curve Moved(const MeanCurve& curve, double times) {
  Curve out = curve.mean;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].y += times * curve.error[i].y;
  }
  return out;
}

std::string GapPanel(const Drawn& drawn) {
  std::vector<Curve> training;
  std::vector<MeanCurve> held_out;
  double limit = 0.1;
  for (const std::vector<Pair>& row : drawn.rows) {
    training.push_back(
        MeanOfRow(row, [&](const Pair& pair) { return SmoothedGap(pair, drawn.half); }).mean);
    held_out.push_back(MeanOfRow(row, HeldOutGap));
    Range range = {0, 0};
    Widen(training.back(), drawn.skipped(), range);
    Widen(Moved(held_out.back(), 1), drawn.skipped(), range);
    Widen(Moved(held_out.back(), -1), drawn.skipped(), range);
    limit = std::max({limit, 1.1 * range.high, -1.1 * range.low});
  }
  const Panel panel({kLeft, 440, kPanelWidth, 130}, drawn.x(), {-limit, limit});
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    const char* const colour = plot::ColourOf(i);
    absl::StrAppend(&lines, panel.Line(training[i], colour), panel.Rings(held_out[i].mean, colour),
                    panel.Bars(Moved(held_out[i], -1), Moved(held_out[i], 1), colour));
    if (!training[i].empty()) {
      heights.emplace_back(panel.HeightOf(training[i].back().y), i);
    }
  }
  const bool bars = std::any_of(drawn.rows.begin(), drawn.rows.end(),
                                [](const std::vector<Pair>& row) { return row.size() > 1; });
  const std::string title = absl::StrCat("gap to ", drawn.reference, " in percent",
                                         bars ? "; bars: standard error held out" : "");
  return absl::StrCat(panel.Axes(title), panel.StepName(), panel.Framed("gap", lines),
                      panel.Names(std::move(heights), drawn.names));
}

// Rows with the runs that have something to draw; "(failed)" where none is ok.
Drawn DrawnOf(const Comparison& comparison) {
  Drawn drawn;
  drawn.steps = comparison.steps;
  drawn.half = std::clamp<size_t>(static_cast<size_t>(comparison.steps) / 40, 1, 25);
  for (const CompareRow& row : RowsOf(comparison)) {
    const ComparedRun& first = comparison.runs[row.runs.front()];
    drawn.names.push_back(row.ok > 0 ? row.name : absl::StrCat(row.name, " (", first.state, ")"));
    std::vector<Pair>& pairs = drawn.rows.emplace_back();
    for (const size_t i : row.runs) {
      if (row.ok > 0 && !comparison.runs[i].ok()) {
        continue;  // it may have ended early, and others have not
      }
      const std::optional<size_t> reference = ReferenceOf(comparison, i);
      const bool compared =
          reference.has_value() && *reference != i && comparison.runs[*reference].ok();
      pairs.push_back({&comparison.runs[i], compared ? &comparison.runs[*reference] : nullptr});
    }
  }
  drawn.reference = comparison.runs.empty() ? "" : comparison.runs.front().recipe;
  return drawn;
}

}  // namespace

std::string ComparePicture(const Comparison& comparison) {
  const std::string title = absl::StrCat(comparison.job, " on ", comparison.device, ", by recipe");
  const Drawn drawn = DrawnOf(comparison);
  return plot::Picture(kWidth, kHeight, title, /*heading=*/true,
                       drawn.names.empty() ? "" : LossPanel(drawn) + GapPanel(drawn));
}

}  // namespace hearth::trainer
