// The picture of a comparison, written as SVG by hand: two panels over the same steps.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "worker/trainer/cli/compare.h"

namespace hearth::trainer {
namespace {

constexpr double kWidth = 900;
constexpr double kHeight = 620;
constexpr double kLeft = 64;
constexpr double kRight = 150;  // room for the names of the curves
constexpr double kLine = 15;    // between two names
constexpr size_t kPointsMax = 1000;
// Of middle lightness, so that they stand out from white and from black.
constexpr const char* kColours[] = {"#3b82c4", "#d9822b", "#3f9f5f", "#b65fb0",
                                    "#c0504d", "#8a8a2f", "#2a9d9d"};
constexpr const char* kGrey = "#808080";

using Curve = std::vector<LossPoint>;

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Means over windows of 2 half + 1 steps, cut off at the ends. Losses that are not finite are left
// out, and so are their steps.
Curve Smoothed(const Curve& curve, size_t half) {
  Curve finite;
  std::copy_if(curve.begin(), curve.end(), std::back_inserter(finite),
               [](const LossPoint& point) { return std::isfinite(point.loss); });
  std::vector<double> sums = {0};
  for (const LossPoint& point : finite) {
    sums.push_back(sums.back() + point.loss);
  }
  Curve out;
  for (size_t i = 0; i < finite.size(); ++i) {
    const size_t low = i < half ? 0 : i - half;
    const size_t high = std::min(finite.size(), i + half + 1);
    out.push_back({finite[i].step, (sums[high] - sums[low]) / static_cast<double>(high - low)});
  }
  return out;
}

// Percent above the reference, at the steps that both have.
Curve GapCurve(const Curve& curve, const Curve& reference) {
  std::map<int64_t, double> at;
  for (const LossPoint& point : reference) {
    at[point.step] = point.loss;
  }
  Curve out;
  for (const LossPoint& point : curve) {
    const auto base = at.find(point.step);
    if (base != at.end() && base->second > 0) {
      out.push_back({point.step, 100 * (point.loss / base->second - 1)});
    }
  }
  return out;
}

// Round numbers, about `count` of them.
std::vector<double> Ticks(double low, double high, double count) {
  const double raw = std::max((high - low) / count, 1e-12);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    step = factor * power >= raw ? factor * power : step;
  }
  std::vector<double> out;
  for (double k = std::ceil(low / step); k * step <= high + 1e-9 * step; ++k) {
    out.push_back(k * step);
  }
  return out;
}

struct Range {
  double low = 0;
  double high = 1;
};

class Panel {
 public:
  Panel(double top, double height, Range x, Range y)
      : top_(top), height_(height), x_range_(x), y_range_(y) {}

  double X(int64_t step) const {
    return kLeft + (kWidth - kLeft - kRight) * (static_cast<double>(step) - x_range_.low) /
                       (x_range_.high - x_range_.low);
  }
  double Y(double value) const {
    return top_ + height_ * (1 - (value - y_range_.low) / (y_range_.high - y_range_.low));
  }
  double Clamped(double value) const { return Y(std::clamp(value, y_range_.low, y_range_.high)); }

  std::string Axes(const std::string& title) const;
  // What is drawn there is cut off at the frame. `id` is the panel's alone.
  std::string Framed(const char* id, const std::string& drawn) const;
  std::string Line(const Curve& curve, const char* colour) const;
  std::string Rings(const Curve& curve, const char* colour) const;
  // Each name at its height, moved apart where they would cover one another.
  std::string Names(std::vector<std::pair<double, size_t>> heights,
                    const std::vector<std::string>& names) const;

 private:
  double top_, height_;
  Range x_range_, y_range_;
};

std::string Panel::Axes(const std::string& title) const {
  const double right = kWidth - kRight;
  const double bottom = top_ + height_;
  std::string out =
      absl::StrFormat("<text x=\"%g\" y=\"%g\" fill=\"%s\" font-weight=\"bold\">%s</text>\n", kLeft,
                      top_ - 10, kGrey, Escaped(title));
  for (const double tick : Ticks(y_range_.low, y_range_.high, 5)) {
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-opacity=\"0.25\"/>"
        "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%g</text>\n",
        kLeft, right, Y(tick), Y(tick), kGrey, kLeft - 8, Y(tick) + 4, kGrey,
        std::abs(tick) < 1e-9 ? 0.0 : tick);
  }
  for (const double tick : Ticks(x_range_.low, x_range_.high, 8)) {
    if (tick != std::floor(tick)) {
      continue;  // there are no half steps
    }
    const double x = X(static_cast<int64_t>(tick));
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"%s\"/>"
        "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">%.0f</text>\n",
        x, x, bottom, bottom + 4, kGrey, x, bottom + 18, kGrey, tick);
  }
  absl::StrAppendFormat(&out,
                        "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"none\" "
                        "stroke=\"%s\" stroke-opacity=\"0.6\"/>\n",
                        kLeft, top_, right - kLeft, height_, kGrey);
  return out;
}

std::string Panel::Framed(const char* id, const std::string& drawn) const {
  return absl::StrFormat(
      "<clipPath id=\"%s\"><rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/></clipPath>\n"
      "<g clip-path=\"url(#%s)\">\n%s</g>\n",
      id, kLeft - 4, top_ - 4, kWidth - kLeft - kRight + 8, height_ + 8, id, drawn);
}

std::string Panel::Line(const Curve& curve, const char* colour) const {
  if (curve.empty()) {
    return "";
  }
  const size_t stride = std::max<size_t>(1, curve.size() / kPointsMax);
  std::string path;
  for (size_t i = 0; i < curve.size(); i += stride) {
    absl::StrAppendFormat(&path, "%.1f,%.1f ", X(curve[i].step), Y(curve[i].loss));
  }
  absl::StrAppendFormat(&path, "%.1f,%.1f", X(curve.back().step), Y(curve.back().loss));
  return absl::StrFormat(
      "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>\n", path, colour);
}

std::string Panel::Rings(const Curve& curve, const char* colour) const {
  std::string out;
  for (const LossPoint& point : curve) {
    if (std::isfinite(point.loss)) {
      absl::StrAppendFormat(&out,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"none\" stroke=\"%s\" "
                            "stroke-width=\"1.4\"/>\n",
                            X(point.step), Y(point.loss), colour);
    }
  }
  return out;
}

std::string Panel::Names(std::vector<std::pair<double, size_t>> heights,
                         const std::vector<std::string>& names) const {
  std::sort(heights.begin(), heights.end());
  // Downwards from the panel's top, then upwards from its bottom.
  double free = top_ + 4;
  for (auto& [y, run] : heights) {
    y = std::max(y, free);
    free = y + kLine;
  }
  free = top_ + height_;
  for (auto it = heights.rbegin(); it != heights.rend(); ++it) {
    it->first = std::min(it->first, free);
    free = it->first - kLine;
  }
  std::string out;
  for (const auto& [y, run] : heights) {
    absl::StrAppendFormat(&out, "<text x=\"%g\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
                          kWidth - kRight + 8, y + 4, kColours[run % std::size(kColours)],
                          Escaped(names[run]));
  }
  return out;
}

// Of what matters: without the fall up to step `after`.
void Widen(const Curve& curve, int64_t after, Range& range) {
  for (const LossPoint& point : curve) {
    if (point.step > after && std::isfinite(point.loss)) {
      range.low = std::min(range.low, point.loss);
      range.high = std::max(range.high, point.loss);
    }
  }
}

Range WithRoom(Range range) {
  if (!(range.low <= range.high)) {
    return {};
  }
  const double room = std::max(0.04 * (range.high - range.low), 0.01);
  return {range.low - room, range.high + room};
}

constexpr Range kNothing = {HUGE_VAL, -HUGE_VAL};

struct Drawn {
  int64_t steps = 0;
  size_t half = 1;  // of the window of smoothing
  std::vector<std::string> names;
  std::vector<Curve> training, held_out;

  Range x() const { return {1, static_cast<double>(std::max<int64_t>(2, steps))}; }
};

std::string LossPanel(const Drawn& drawn) {
  Range y = kNothing;
  std::vector<Curve> training;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    training.push_back(Smoothed(drawn.training[i], drawn.half));
    Widen(training[i], drawn.steps / 10, y);
    Widen(drawn.held_out[i], drawn.steps / 10, y);
  }
  const Panel panel(56, 320, drawn.x(), WithRoom(y));
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 0; i < drawn.names.size(); ++i) {
    const char* const colour = kColours[i % std::size(kColours)];
    absl::StrAppend(&lines, panel.Line(training[i], colour),
                    panel.Rings(drawn.held_out[i], colour));
    if (!training[i].empty()) {
      heights.emplace_back(panel.Clamped(training[i].back().loss), i);
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
  const int64_t last = drawn.training[i].empty() ? 0 : drawn.training[i].back().step;
  while (!reference.empty() && reference.back().step > last) {
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
    Widen(training.back(), drawn.steps / 10, range);
    Widen(held_out.back(), drawn.steps / 10, range);
    limit = std::max({limit, 1.1 * range.high, -1.1 * range.low});
  }
  const Panel panel(440, 130, drawn.x(), {-limit, limit});
  std::string lines;
  std::vector<std::pair<double, size_t>> heights;
  for (size_t i = 1; i < drawn.names.size(); ++i) {
    const char* const colour = kColours[i % std::size(kColours)];
    absl::StrAppend(&lines, panel.Line(training[i], colour), panel.Rings(held_out[i], colour));
    if (!training[i].empty()) {
      heights.emplace_back(panel.Clamped(training[i].back().loss), i);
    }
  }
  const std::string title = absl::StrCat("gap to ", drawn.names[0], " in percent");
  return absl::StrCat(panel.Axes(title), panel.Framed("gap", lines),
                      panel.Names(std::move(heights), drawn.names));
}

}  // namespace

std::string ComparePicture(const Comparison& comparison) {
  const std::string title = absl::StrCat(comparison.job, " on ", comparison.device, ", by recipe");
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<title>%s</title>\n"
      "<text x=\"%g\" y=\"22\" fill=\"%s\" font-size=\"15\" font-weight=\"bold\">%s</text>\n",
      kWidth, kHeight, Escaped(title), kLeft, kGrey, Escaped(title));
  Drawn drawn;
  drawn.steps = comparison.steps;
  drawn.half = std::clamp<size_t>(static_cast<size_t>(comparison.steps) / 40, 1, 25);
  for (const ComparedRun& run : comparison.runs) {
    drawn.names.push_back(run.ok() ? run.recipe : absl::StrCat(run.recipe, " (", run.state, ")"));
    drawn.training.push_back(run.training);
    drawn.held_out.push_back(run.held_out);
  }
  if (!drawn.names.empty()) {
    absl::StrAppend(&out, LossPanel(drawn), GapPanel(drawn));
  }
  absl::StrAppendFormat(
      &out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">step</text>\n</svg>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 10, kGrey);
  return out;
}

}  // namespace hearth::trainer
