#include "common/plot/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/html.h"

namespace hearth::plot {
namespace {

constexpr const char* kGrey = "#808080";
constexpr double kLine = 15;  // between two names
constexpr size_t kPointsMax = 1000;

// Round numbers, about `count` of them.
std::vector<double> Ticks(Range range, double count) {
  const double raw = std::max((range.high - range.low) / count, 1e-12);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    step = factor * power >= raw ? factor * power : step;
  }
  std::vector<double> out;
  for (double k = std::ceil(range.low / step); k * step <= range.high + 1e-9 * step; ++k) {
    out.push_back(k * step);
  }
  return out;
}

}  // namespace

void Widen(const Curve& curve, double after, Range& range) {
  for (const Point& point : curve) {
    if (point.x > after && std::isfinite(point.y)) {
      range.low = std::min(range.low, point.y);
      range.high = std::max(range.high, point.y);
    }
  }
}

Range WithMargin(Range range) {
  if (!(range.low <= range.high)) {
    return {};
  }
  const double room = std::max(0.04 * (range.high - range.low), 0.01);
  return {range.low - room, range.high + room};
}

const char* ColourOf(size_t i) {
  return kColours[i % std::size(kColours)];
}

Panel::Panel(const Place& place, Range x_range, Range y_range)
    : place_(place), x_range_(x_range), y_range_(y_range) {}

double Panel::X(double step) const {
  return place_.left + place_.width * (step - x_range_.low) / (x_range_.high - x_range_.low);
}

double Panel::Y(double value) const {
  return place_.top + place_.height * (1 - (value - y_range_.low) / (y_range_.high - y_range_.low));
}

double Panel::HeightOf(double value) const {
  return Y(std::clamp(value, y_range_.low, y_range_.high));
}

std::string Panel::Axes(const std::string& title) const {
  const double right = place_.left + place_.width;
  const double bottom = place_.top + place_.height;
  std::string out;
  if (!title.empty()) {
    out = absl::StrFormat("<text x=\"%g\" y=\"%g\" fill=\"%s\" font-weight=\"bold\">%s</text>\n",
                          place_.left, place_.top - 10, kGrey, HtmlEscaped(title));
  }
  for (const double tick : Ticks(y_range_, 5)) {
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-opacity=\"0.25\"/>"
        "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%g</text>\n",
        place_.left, right, Y(tick), Y(tick), kGrey, place_.left - 8, Y(tick) + 4, kGrey,
        std::abs(tick) < 1e-9 ? 0.0 : tick);
  }
  for (const double tick : Ticks(x_range_, 8)) {
    if (tick != std::floor(tick)) {
      continue;  // there are no half steps
    }
    const double x = X(tick);
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"%s\"/>"
        "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">%.0f</text>\n",
        x, x, bottom, bottom + 4, kGrey, x, bottom + 18, kGrey, tick);
  }
  absl::StrAppendFormat(&out,
                        "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"none\" "
                        "stroke=\"%s\" stroke-opacity=\"0.6\"/>\n",
                        place_.left, place_.top, place_.width, place_.height, kGrey);
  return out;
}

std::string Panel::StepName() const {
  return absl::StrFormat("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">step</text>\n",
                         place_.left + place_.width / 2, place_.top + place_.height + 40, kGrey);
}

std::string Panel::Framed(const std::string& id, const std::string& drawn) const {
  return absl::StrFormat(
      "<clipPath id=\"%s\"><rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/></clipPath>\n"
      "<g clip-path=\"url(#%s)\">\n%s</g>\n",
      id, place_.left - 4, place_.top - 4, place_.width + 8, place_.height + 8, id, drawn);
}

std::string Panel::Line(const Curve& curve, const char* colour) const {
  const size_t stride = std::max<size_t>(1, curve.size() / kPointsMax);
  std::vector<std::vector<std::string>> parts(1);
  for (size_t i = 0; i < curve.size(); ++i) {
    if (i % stride != 0 && i + 1 != curve.size()) {
      continue;
    }
    if (!std::isfinite(curve[i].y)) {
      parts.emplace_back();
      continue;
    }
    parts.back().push_back(absl::StrFormat("%.1f,%.1f", X(curve[i].x), Y(curve[i].y)));
  }
  std::string out;
  for (std::vector<std::string>& part : parts) {
    if (part.size() == 1) {
      part.push_back(part.front());  // a dot: its round ends
    }
    if (!part.empty()) {
      absl::StrAppendFormat(&out,
                            "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" "
                            "stroke-width=\"1.6\" stroke-linecap=\"round\"/>\n",
                            absl::StrJoin(part, " "), colour);
    }
  }
  return out;
}

std::string Panel::Rings(const Curve& curve, const char* colour) const {
  std::string out;
  for (const Point& point : curve) {
    if (std::isfinite(point.y)) {
      absl::StrAppendFormat(&out,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"none\" stroke=\"%s\" "
                            "stroke-width=\"1.4\"/>\n",
                            X(point.x), Y(point.y), colour);
    }
  }
  return out;
}

std::string Panel::Bars(const Curve& low, const Curve& high, const char* colour) const {
  constexpr double kHalf = 3;  // of the lines at its ends
  std::string out;
  for (size_t i = 0; i < std::min(low.size(), high.size()); ++i) {
    if (!std::isfinite(low[i].y) || !std::isfinite(high[i].y) || !(high[i].y > low[i].y)) {
      continue;
    }
    const double x = X(low[i].x);
    const double top = Y(high[i].y);
    const double bottom = Y(low[i].y);
    absl::StrAppendFormat(&out,
                          "<path d=\"M%.1f %.1fV%.1fM%.1f %.1fH%.1fM%.1f %.1fH%.1f\" "
                          "stroke=\"%s\" stroke-width=\"1.2\"/>\n",
                          x, top, bottom, x - kHalf, top, x + kHalf, x - kHalf, bottom, x + kHalf,
                          colour);
  }
  return out;
}

std::string Panel::Names(std::vector<std::pair<double, size_t>> heights_and_curves,
                         const std::vector<std::string>& names) const {
  auto& heights = heights_and_curves;
  std::sort(heights.begin(), heights.end());
  // Downwards from the panel's top, then upwards from its bottom.
  double free = place_.top + 4;
  for (auto& [y, curve] : heights) {
    y = std::max(y, free);
    free = y + kLine;
  }
  free = place_.top + place_.height;
  for (auto it = heights.rbegin(); it != heights.rend(); ++it) {
    it->first = std::min(it->first, free);
    free = it->first - kLine;
  }
  std::string out;
  for (const auto& [y, curve] : heights) {
    absl::StrAppendFormat(&out, "<text x=\"%g\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
                          place_.left + place_.width + 8, y + 4, ColourOf(curve),
                          HtmlEscaped(names[curve]));
  }
  return out;
}

std::string Picture(double width,
                    double height,
                    const std::string& title,
                    bool heading,
                    const std::string& panels) {
  const std::string text = HtmlEscaped(title);
  std::string above;
  if (heading) {
    above = absl::StrFormat(
        "<text x=\"64\" y=\"22\" fill=\"%s\" font-size=\"15\" font-weight=\"bold\">%s</text>\n",
        kGrey, text);
  }
  return absl::StrFormat(
      "<svg %sviewBox=\"0 0 %g %g\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<title>%s</title>\n%s%s</svg>\n",
      heading ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", width, height, text, above, panels);
}

}  // namespace hearth::plot
