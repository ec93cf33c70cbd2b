#include "jobctl/views/text/display_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace hearth::jobctl {
namespace {

constexpr std::string_view kEllipsis = "...";

// Bytes of the code point at `at`; 0 when there is no whole one in the shortest form.
size_t CodePointBytes(std::string_view text, size_t at, uint32_t* value = nullptr) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t count = first < 0x80                    ? 1
                       : first >= 0xc2 && first < 0xe0 ? 2
                       : first >= 0xe0 && first < 0xf0 ? 3
                       : first >= 0xf0 && first < 0xf5 ? 4
                                                       : 0;
  if (count == 0 || at + count > text.size()) {
    return 0;
  }
  static constexpr uint32_t kLeadMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  uint32_t code = first & kLeadMask[count];
  for (size_t i = at + 1; i < at + count; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(i) & 0x3f);
  }
  if (code < kLeast[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return 0;
  }
  if (value != nullptr) {
    *value = code;
  }
  return count;
}

// Characters that move the cursor, start a terminal command or change the writing direction.
bool CommandsTerminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

// Bytes of the first `width` columns.
size_t BytesOf(std::string_view text, int width) {
  size_t end = 0;
  for (int left = width; end < text.size() && left > 0; --left) {
    end = std::min(text.size(), end + std::max<size_t>(1, CodePointBytes(text, end)));
  }
  return end;
}

// Bytes of a word that a line of `width` columns takes: up to a slash in its second half, if there
// is one.
size_t FirstPiece(std::string_view word, int width) {
  const size_t full = BytesOf(word, width);
  const size_t slash = full == 0 ? std::string_view::npos : word.rfind('/', full - 1);
  return slash != std::string_view::npos && slash >= full / 2 ? slash + 1 : full;
}

}  // namespace

std::string Number(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string Sparkline(const std::vector<double>& values, int width) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width <= 0) {
    return "";
  }
  // The mean of each of `width` equal stretches.
  const size_t points = std::min(values.size(), static_cast<size_t>(width));
  std::vector<double> means(points, 0);
  for (size_t i = 0; i < points; ++i) {
    const size_t begin = i * values.size() / points;
    const size_t end = std::max(begin + 1, (i + 1) * values.size() / points);
    for (size_t j = begin; j < end; ++j) {
      means[i] += values[j] / static_cast<double>(end - begin);
    }
  }
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double span = *high - *low;
  std::string out;
  for (const double mean : means) {
    const double share = span > 0 ? (mean - *low) / span : 0;
    out += std::isfinite(share) ? kBars[std::clamp(static_cast<int>(share * 7.99), 0, 7)] : " ";
  }
  return out;
}

std::string EscapeControl(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t code = static_cast<unsigned char>(text[at]);
    const size_t bytes = CodePointBytes(text, at, &code);
    const bool kept = code == '\t' || (code == '\n' && keep_lines);
    if (bytes == 0 || (CommandsTerminal(code) && !kept)) {
      absl::StrAppendFormat(&out, "\\u%04x", code);
    } else {
      out.append(text.substr(at, bytes));
    }
    at += std::max<size_t>(bytes, 1);
  }
  return out;
}

int DisplayWidth(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string CutEnd(std::string_view text, int width) {
  if (DisplayWidth(text) <= width) {
    return std::string(text);
  }
  std::string out(text.substr(0, BytesOf(text, width - DisplayWidth(kEllipsis))));
  return out.append(kEllipsis);
}

std::string WrapText(std::string_view text, int width, int indent, LongWords long_words) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  const std::vector<std::string> words =
      absl::StrSplit(std::string(text), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (DisplayWidth(text) <= width && text.find('\n') == std::string_view::npos) {
    return std::string(text);
  }
  std::string out;
  int at = 0;
  for (const std::string& word : words) {
    std::string_view rest = word;
    int length = DisplayWidth(rest);
    if (!out.empty() && at + 1 + length > width) {
      absl::StrAppend(&out, "\n", margin);
      at = 0;
    } else if (!out.empty()) {
      out += ' ';
      ++at;
    }
    while (length > width && width > 0 && long_words == LongWords::kBreak) {
      const size_t bytes = FirstPiece(rest, width);
      out.append(rest.substr(0, bytes)).append("\n").append(margin);
      rest.remove_prefix(bytes);
      length = DisplayWidth(rest);
    }
    out += rest;
    at += length;
  }
  return out;
}

std::string ShortenMiddle(std::string_view text, int width) {
  const int left = width - DisplayWidth(kEllipsis);
  const int all = DisplayWidth(text);
  if (all <= width || left <= 0) {
    return std::string(text);
  }
  const int begin = left / 4;
  std::string out(text.substr(0, BytesOf(text, begin)));
  return out.append(kEllipsis).append(text.substr(BytesOf(text, all - (left - begin))));
}

}  // namespace hearth::jobctl
