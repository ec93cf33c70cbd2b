#include "jobctl/views/plots/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/units.h"

namespace hearth::jobctl {
namespace {

// Colours that people with red-green colour blindness can tell apart.
constexpr const char* kColors[] = {"\033[36m", "\033[33m", "\033[35m",
                                   "\033[32m", "\033[34m", "\033[31m"};
constexpr const char* kNoColor = "\033[0m";
constexpr char kMarks[] = {'*', '+', 'o', 'x', '#', '@', '%', '='};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // The place of `value` in the range, 0..1; the middle if the range has only one value. Computed
  // with halves, because the difference of the largest doubles is infinite.
  double Share(double value) const {
    return high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
  }
};

// Digits that tell the ends of the range apart, at least four.
int DigitsFor(const Range& range) {
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  int digits = largest >= 1e4 && largest < 1e7 ? 7 : 4;
  while (digits < 12 && range.low != range.high &&
         absl::StrFormat("%.*g", digits, range.low) ==
             absl::StrFormat("%.*g", digits, range.high)) {
    ++digits;
  }
  return digits;
}

std::string Label(double value, int digits) {
  return absl::StrFormat("%.*g", digits, value);
}

// A label of the vertical axis. Thousands are shortened as people write them, "195k", unless both
// ends of a narrow range would then get the same label.
std::string ValueLabel(double value, const Range& range, int digits) {
  const bool large = range.high >= 1e4 && range.low >= 0 &&
                     FormatCount(range.low) != FormatCount(range.high) &&
                     range.high - range.low > 0.01 * range.high;
  return large ? FormatCount(value) : Label(value, digits);
}

std::string Utf8(uint32_t code) {  // U+0800..U+FFFF
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// Dots in character cells, each cell remembering the last series drawn into it.
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille)
      : columns_(columns),
        rows_(rows),
        braille_(braille),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  void Draw(const PlotSeries& series, int index, const Range& xs, const Range& ys) {
    bool joined = false;
    int last_x = 0;
    int last_y = 0;
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!std::isfinite(series.y[i])) {
        joined = false;
        continue;
      }
      const int x = static_cast<int>(std::lround(xs.Share(series.x[i]) * (DotColumns() - 1)));
      const int y = static_cast<int>(std::lround((1.0 - ys.Share(series.y[i])) * (DotRows() - 1)));
      Line(joined ? last_x : x, joined ? last_y : y, x, y, index);
      joined = true;
      last_x = x;
      last_y = y;
    }
  }

  std::string Row(int row, bool color) const {
    std::string out;
    int painted = -1;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[Index(column, row)];
      const int wanted = cell.dots == 0 || !color ? -1 : cell.series;
      if (wanted != painted) {
        absl::StrAppend(
            &out, painted >= 0 ? kNoColor : "",
            wanted >= 0 ? kColors[static_cast<size_t>(wanted) % std::size(kColors)] : "");
        painted = wanted;
      }
      if (cell.dots == 0) {
        out += ' ';
      } else if (braille_) {
        // U+2800 is the empty pattern; its low 8 bits are the dots.
        out += Utf8(0x2800U + cell.dots);
      } else {
        out += kMarks[static_cast<size_t>(cell.series) % std::size(kMarks)];
      }
    }
    return out + (painted >= 0 ? kNoColor : "");
  }

 private:
  struct Cell {
    uint8_t dots = 0;
    int series = -1;
  };

  int DotColumns() const { return columns_ * (braille_ ? 2 : 1); }
  int DotRows() const { return rows_ * (braille_ ? 4 : 1); }
  size_t Index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  // Bresenham, both ends included.
  void Line(int x0, int y0, int x1, int y1, int series) {
    const int dx = std::abs(x1 - x0);
    const int dy = -std::abs(y1 - y0);
    const int sx = x0 < x1 ? 1 : -1;
    const int sy = y0 < y1 ? 1 : -1;
    int error = dx + dy;
    while (true) {
      Dot(x0, y0, series);
      if (x0 == x1 && y0 == y1) {
        return;
      }
      const int twice = 2 * error;
      if (twice >= dy) {
        error += dy;
        x0 += sx;
      }
      if (twice <= dx) {
        error += dx;
        y0 += sy;
      }
    }
  }

  void Dot(int x, int y, int series) {
    // Bits of the braille patterns, by column and row of the dot.
    static constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    Cell& cell = braille_ ? cells_[Index(x / 2, y / 4)] : cells_[Index(x, y)];
    cell.dots = static_cast<uint8_t>(cell.dots | (braille_ ? kBits[x % 2][y % 4] : 1));
    cell.series = series;
  }

  const int columns_;
  const int rows_;
  const bool braille_;
  std::vector<Cell> cells_;
};

std::string Stripped(std::string line) {
  absl::StripTrailingAsciiWhitespace(&line);
  return line + "\n";
}

std::string Legend(const std::vector<PlotSeries>& series, bool color, bool marks) {
  std::string out;
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string key = marks ? std::string(1, kMarks[i % std::size(kMarks)]) : "──";
    absl::StrAppend(&out, "  ", color ? kColors[i % std::size(kColors)] : "", key,
                    color ? kNoColor : "", " ", series[i].name);
  }
  return out;
}

std::string XAxis(const Range& xs, size_t indent, int columns, const PlotOptions& options) {
  std::string out = absl::StrCat(std::string(indent, ' '), options.utf8 ? "└" : "+");
  for (int column = 0; column < columns; ++column) {
    out += options.utf8 ? "─" : "-";
  }
  const auto text = [&options](double x) {
    return options.x_text ? options.x_text(x) : Label(x, 15);
  };
  const std::string first = text(xs.low);
  const std::string last = xs.low == xs.high ? "" : text(xs.high);
  const int gap = std::max(1, columns - static_cast<int>(first.size() + last.size()));
  return out + "\n" +
         Stripped(absl::StrCat(std::string(indent + 1, ' '), first,
                               std::string(static_cast<size_t>(gap), ' '), last));
}

}  // namespace

std::string RenderPlot(const std::string& title,
                       const std::vector<PlotSeries>& series,
                       const PlotOptions& options) {
  Range xs;
  Range ys;
  for (const PlotSeries& one : series) {
    for (size_t i = 0; i < one.x.size(); ++i) {
      if (std::isfinite(one.y[i])) {
        xs.Add(one.x[i]);
        ys.Add(one.y[i]);
      }
    }
  }
  if (ys.empty()) {
    return title + ": no values\n";
  }
  const bool several = series.size() > 1;
  // Without colours, several curves are told apart by their marks, which braille lacks.
  const bool braille = options.utf8 && (!several || options.color);
  // An odd number, so that one row's centre is the middle of the range.
  const int room = std::max(options.height, 6) - (several ? 4 : 3);
  const int rows = room - (room % 2 == 0 ? 1 : 0);
  const bool flat = ys.low == ys.high;  // one value: one label
  const int digits = DigitsFor(ys);
  const std::string top = flat ? "" : ValueLabel(ys.high, ys, digits);
  const std::string middle = ValueLabel(flat ? ys.low : ys.low / 2 + ys.high / 2, ys, digits);
  const std::string bottom = flat ? "" : ValueLabel(ys.low, ys, digits);
  const size_t margin = std::max({top.size(), middle.size(), bottom.size()});
  const int columns = std::max(options.width, 24) - static_cast<int>(margin) - 2;
  Canvas canvas(columns, rows, braille);
  for (size_t i = 0; i < series.size(); ++i) {
    canvas.Draw(series[i], static_cast<int>(i), xs, ys);
  }
  std::string out = title + "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string label = row == 0          ? top
                              : row == rows - 1 ? bottom
                              : row == rows / 2 ? middle
                                                : "";
    const char* edge = options.utf8 ? (label.empty() ? "│" : "┤") : (label.empty() ? "|" : "+");
    out += Stripped(absl::StrCat(std::string(margin - label.size(), ' '), label, " ", edge,
                                 canvas.Row(row, options.color)));
  }
  out += XAxis(xs, margin + 1, columns, options);
  if (several) {
    out += Stripped(Legend(series, options.color, !braille));
  }
  return out;
}

}  // namespace hearth::jobctl
