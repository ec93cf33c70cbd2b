// Rows of text in columns.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace hearth::jobctl {

// Left-aligned columns, two spaces apart; headers have no spaces. Control characters in cells are
// escaped, line ends too.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);
  // Never cuts this column, counted from 0.
  void Keep(size_t column) { kept_.insert(column); }
  // Shortens the last column in the middle instead of wrapping it: for paths, which differ at
  // their end.
  void ShortenLast() { shorten_last_ = true; }
  // For -o wide: cuts and shortens nothing. The last column wraps at blanks only, so a table may be
  // wider than asked for.
  void Whole() { whole_ = true; }
  // Columns that it takes where any width is allowed.
  int Width() const;
  // At most `columns` wide, 0 = any width: a long last column wraps as WrapText does, the widest of
  // the others are cut with an ellipsis, to no less than 8 characters.
  std::string Render(int columns = 0) const;

 private:
  std::vector<int> Widths() const;
  std::string LastCell(const std::string& cell, int width, int indent) const;

  std::vector<std::vector<std::string>> rows_;
  std::set<size_t> kept_;
  bool shorten_last_ = false;
  bool whole_ = false;
};

}  // namespace hearth::jobctl
