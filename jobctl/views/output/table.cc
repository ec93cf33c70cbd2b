#include "jobctl/views/output/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

constexpr int kGap = 2;  // blanks between columns
constexpr int kNarrowestCut = 8;
constexpr int kNarrowestWrap = 20;

// Widths with which a table fits. The last column can wrap, so it shrinks first; then the widest of
// the others.
std::vector<int> FitWidths(const std::vector<std::string>& header,
                           std::vector<int> widths,
                           const std::set<size_t>& kept,
                           int columns) {
  const auto excess = [&widths, columns] {
    int sum = -kGap;
    for (const int width : widths) {
      sum += width + kGap;
    }
    return columns > 0 ? sum - columns : 0;
  };
  if (excess() > 0) {
    widths.back() = std::max(std::min(widths.back(), kNarrowestWrap), widths.back() - excess());
  }
  while (excess() > 0) {
    // The widest that may still be cut.
    int* widest = nullptr;
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const int least = std::max(kNarrowestCut, DisplayWidth(header[i]));
      if (widths[i] > least && kept.count(i) == 0 && (widest == nullptr || widths[i] > *widest)) {
        widest = &widths[i];
      }
    }
    if (widest == nullptr) {
      break;
    }
    --*widest;
  }
  return widths;
}

}  // namespace

Table::Table(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) {
    cell = EscapeControl(cell, /*keep_lines=*/false);
  }
  rows_.push_back(std::move(row));
}

std::vector<int> Table::Widths() const {
  std::vector<int> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  return widths;
}

int Table::Width() const {
  int sum = -kGap;
  for (const int width : Widths()) {
    sum += width + kGap;
  }
  return sum;
}

// A cell of the last column, which has `width` columns from `indent` on.
std::string Table::LastCell(const std::string& cell, int width, int indent) const {
  if (shorten_last_ && !whole_) {
    return ShortenMiddle(cell, width);
  }
  return WrapText(cell, width, indent, whole_ ? LongWords::kKeep : LongWords::kBreak);
}

std::string Table::Render(int columns) const {
  const std::vector<int> widths = Widths();
  const std::vector<int> fitted = whole_ ? widths : FitWidths(rows_[0], widths, kept_, columns);
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    int at = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      const bool full = i == widths.size() - 1 && columns > 0;
      const std::string cell = full ? LastCell(row[i], std::max(columns - at, kNarrowestWrap), at)
                                    : CutEnd(row[i], fitted[i]);
      line += cell;
      if (!last) {
        line.append(static_cast<size_t>(fitted[i]) - static_cast<size_t>(DisplayWidth(cell)) + kGap,
                    ' ');
        at += fitted[i] + kGap;
      }
    }
    absl::StripTrailingAsciiWhitespace(&line);
    out += line + "\n";
  }
  return out;
}

}  // namespace hearth::jobctl
