#include "common/plot/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/html.h"

namespace hearth::plot {
namespace {

constexpr const char* kGrey = "#808080";
constexpr double kLine = 15;  // between two names
constexpr size_t kPointsMax = 1000;
constexpr double kDot = 4;  // its radius
constexpr double kDecades =
    3;  // of a logarithmic axis that has 1, 2 and 5 of each; of longer ones 1

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

// The round numbers of a logarithmic axis.
std::vector<double> Powers(Range range) {
  const bool few = range.high <= range.low * std::pow(10, kDecades);
  std::vector<double> out;
  for (double power = std::pow(10, std::floor(std::log10(range.low))); power <= range.high;
       power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * power;
      if (tick >= range.low && tick <= range.high && (few || factor == 1)) {
        out.push_back(tick);
      }
    }
  }
  return out;
}

std::vector<double> TicksOf(const Axis& axis, double count) {
  std::vector<double> ticks = axis.logarithmic ? Powers(axis.range) : Ticks(axis.range, count);
  if (axis.whole) {
    std::erase_if(ticks, [](double tick) { return tick != std::floor(tick); });
  }
  return ticks;
}

std::string TickText(const Axis& axis, double tick) {
  return axis.whole ? absl::StrFormat("%.0f", tick)
                    : absl::StrFormat("%g", std::abs(tick) < 1e-9 && !axis.logarithmic ? 0 : tick);
}

// Where a value lies on an axis, 0..1.
double ShareOf(const Axis& axis, double value) {
  const auto [low, high] = axis.range;
  return axis.logarithmic ? std::log(value / low) / std::log(high / low)
                          : (value - low) / (high - low);
}

struct Box {
  double left, top, right, bottom;

  bool Covers(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// A name beside a dot.
struct Label {
  Box box;
  double x, y;  // of the text
  const char* anchor;
};

// Where it may stand, the best first. The widths of letters are not known: a wide font's mean.
std::vector<Label> LabelsAt(double x, double y, const std::string& name) {
  constexpr double kLetter = 7.4;
  constexpr double kAway = kDot + 4;
  const double width = kLetter * static_cast<double>(name.size());
  const double high = kLine / 2;
  const double below = y + kDot + kLine;
  const double above = y - kDot - kLine;
  return {
      {{x + kAway, y - high, x + kAway + width, y + high}, x + kAway, y + 4, "start"},
      {{x - kAway - width, y - high, x - kAway, y + high}, x - kAway, y + 4, "end"},
      {{x - width / 2, above, x + width / 2, above + kLine}, x, above + kLine - 4, "middle"},
      {{x - width / 2, below - kLine, x + width / 2, below}, x, below - 4, "middle"},
  };
}

}  // namespace

Axis AxisFor(const std::vector<double>& values, std::string name) {
  Axis axis = {.range = kNothing, .name = std::move(name)};
  for (const double value : values) {
    axis.range.low = std::min(axis.range.low, value);
    axis.range.high = std::max(axis.range.high, value);
  }
  if (!(axis.range.low <= axis.range.high)) {
    axis.range = {};
    return axis;
  }
  constexpr double kRoom = 1.3;  // times
  axis.logarithmic = axis.range.high >= 10 * axis.range.low;
  axis.range = axis.logarithmic ? Range{axis.range.low / kRoom, axis.range.high * kRoom}
                                : Range{0, axis.range.high * (1 + (kRoom - 1) / 3)};
  return axis;
}

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
    : Panel(place, Scales{{.range = x_range, .whole = true}, {.range = y_range}}) {}

Panel::Panel(const Place& place, Scales scales)
    : place_(place), x_(std::move(scales.x)), y_(std::move(scales.y)) {}

double Panel::X(double value) const {
  return place_.left + place_.width * ShareOf(x_, value);
}

double Panel::Y(double value) const {
  return place_.top + place_.height * (1 - ShareOf(y_, value));
}

double Panel::HeightOf(double value) const {
  return Y(std::clamp(value, y_.range.low, y_.range.high));
}

std::string Panel::YNumbers() const {
  const double right = place_.left + place_.width;
  std::string out;
  for (const double tick : TicksOf(y_, 5)) {
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-opacity=\"0.25\"/>"
        "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%s</text>\n",
        place_.left, right, Y(tick), Y(tick), kGrey, place_.left - 8, Y(tick) + 4, kGrey,
        TickText(y_, tick));
  }
  return out;
}

std::string Panel::XNumbers() const {
  const double bottom = place_.top + place_.height;
  std::string out;
  for (const double tick : TicksOf(x_, 8)) {
    const double x = X(tick);
    absl::StrAppendFormat(
        &out,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"%s\"/>"
        "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
        x, x, bottom, bottom + 4, kGrey, x, bottom + 18, kGrey, TickText(x_, tick));
  }
  return out;
}

std::string Panel::AxisNames() const {
  std::string out;
  if (!x_.name.empty()) {
    absl::StrAppendFormat(&out,
                          "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
                          place_.left + place_.width / 2, place_.top + place_.height + 40, kGrey,
                          HtmlEscaped(x_.name));
  }
  if (!y_.name.empty()) {
    const double x = place_.left - 52;
    const double y = place_.top + place_.height / 2;
    absl::StrAppendFormat(&out,
                          "<text x=\"%g\" y=\"%g\" transform=\"rotate(-90 %g %g)\" "
                          "text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
                          x, y, x, y, kGrey, HtmlEscaped(y_.name));
  }
  return out;
}

std::string Panel::Axes(const std::string& title) const {
  std::string out;
  if (!title.empty()) {
    out = absl::StrFormat("<text x=\"%g\" y=\"%g\" fill=\"%s\" font-weight=\"bold\">%s</text>\n",
                          place_.left, place_.top - 10, kGrey, HtmlEscaped(title));
  }
  absl::StrAppend(&out, YNumbers(), XNumbers(), AxisNames());
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

std::string Panel::Dot(const Point& point, const char* colour, const std::string& title) const {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"><title>%s</title></circle>\n",
      X(point.x), Y(point.y), kDot, colour, HtmlEscaped(title));
}

std::string Panel::Labels(const std::vector<Point>& points,
                          const std::vector<std::string>& names) const {
  const Box frame = {place_.left, place_.top, place_.left + place_.width,
                     place_.top + place_.height};
  std::vector<Box> taken;
  for (const Point& point : points) {
    const double x = X(point.x);
    const double y = Y(point.y);
    taken.push_back({x - kDot, y - kDot, x + kDot, y + kDot});
  }
  const auto is_free = [&](const Label& label) {
    const Box& box = label.box;
    return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top &&
           box.bottom <= frame.bottom &&
           std::none_of(taken.begin(), taken.end(),
                        [&](const Box& other) { return box.Covers(other); });
  };
  std::string out;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::vector<Label> labels = LabelsAt(X(points[i].x), Y(points[i].y), names[i]);
    const auto label = std::find_if(labels.begin(), labels.end(), is_free);
    if (label == labels.end()) {
      continue;
    }
    taken.push_back(label->box);
    absl::StrAppendFormat(
        &out,
        "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n",
        label->x, label->y, label->anchor, ColourOf(i), HtmlEscaped(names[i]));
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
