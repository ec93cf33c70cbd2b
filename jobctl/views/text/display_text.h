// Texts and numbers as a terminal shows them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::jobctl {

std::string Number(double value, int digits);  // fixed point; "-" when not finite
std::string Sparkline(const std::vector<double>& values, int width);  // U+2581..U+2588

// `text` with what a terminal would take for commands, or draw out of order, as \u00XX: control
// characters (C0 but tab and, with `keep_lines`, line end; DEL; C1), marks of writing direction,
// and bytes that are not UTF-8. JSON and YAML strings stay what they are.
std::string EscapeControl(std::string_view text, bool keep_lines);

// Columns that UTF-8 text takes on a terminal, a code point each.
int DisplayWidth(std::string_view text);

// `text` cut to at most `width` columns, with an ellipsis at the end.
std::string CutEnd(std::string_view text, int width);

enum class LongWords { kBreak, kKeep };

// `text` wrapped at blanks and line ends so that each line has at most `width` columns; lines after
// the first are indented by `indent` blanks. A word that is longer than `width` begins a line, and
// is broken after a slash, else where the line is full; with kKeep it gets a wider line.
std::string WrapText(std::string_view text,
                     int width,
                     int indent,
                     LongWords long_words = LongWords::kBreak);

// `text` in at most `width` columns: the middle is left out, and more of the end stays than of the
// beginning.
std::string ShortenMiddle(std::string_view text, int width);

}  // namespace hearth::jobctl
