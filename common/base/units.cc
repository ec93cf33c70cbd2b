#include "common/base/units.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth {
namespace {

absl::string_view Sv(std::string_view s) {
  return {s.data(), s.size()};
}

struct ByteUnit {
  std::string_view name;  // lower case
  double factor;
};

constexpr double kKi = 1024.0;
constexpr ByteUnit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"m", kKi* kKi},
    {"g", kKi* kKi* kKi},
    {"t", kKi* kKi* kKi* kKi},
    {"kib", kKi},
    {"mib", kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"kb", 1e3},
    {"mb", 1e6},
    {"gb", 1e9},
    {"tb", 1e12},
};

// Splits "1.5 GiB" into "1.5" and "gib" (lower case).
void SplitNumber(std::string_view text, std::string& number, std::string& unit) {
  const std::string trimmed(absl::StripAsciiWhitespace(Sv(text)));
  size_t end = 0;
  while (end < trimmed.size() && (absl::ascii_isdigit(trimmed[end]) || trimmed[end] == '.')) {
    ++end;
  }
  number = trimmed.substr(0, end);
  unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(trimmed.substr(end)));
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = std::abs(static_cast<double>(bytes));
  size_t unit = 0;
  // 1023.95 would print as "1024.0".
  while (value >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  const char* sign = bytes < 0 ? "-" : "";
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%s%.1f %s", sign, value, kNames[unit]);
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  std::string number;
  std::string unit;
  SplitNumber(text, number, unit);
  double value = 0;
  if (number.empty() || !absl::SimpleAtod(number, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Sv(text), "\" is not a number of bytes (try 4096, 64KiB, 1.5GiB)"));
  }
  for (const ByteUnit& row : kByteUnits) {
    if (row.name == unit) {
      int64_t whole = 0;
      if (row.factor == 1 && absl::SimpleAtoi(number, &whole)) {
        return whole;
      }
      const double bytes = value * row.factor;
      if (bytes >= 9223372036854775808.0) {
        return absl::InvalidArgumentError(absl::StrCat("\"", Sv(text), "\" is too many bytes"));
      }
      return static_cast<int64_t>(std::llround(bytes));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", Sv(text), "\": unknown unit \"", unit,
                                                 "\" (B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"));
}

std::string HumanDuration(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) {
    return absl::StrCat("-", HumanDuration(-duration));
  }
  if (duration == absl::InfiniteDuration()) {
    return "inf";
  }
  if (duration < absl::Seconds(1)) {
    return absl::StrCat(absl::ToInt64Milliseconds(duration), "ms");
  }
  const int64_t seconds = absl::ToInt64Seconds(duration);
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (seconds < 60) {
    return absl::StrCat(seconds, "s");
  }
  if (minutes < 60) {
    return absl::StrFormat("%dm%02ds", minutes, seconds % 60);
  }
  if (hours < 24) {
    return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  }
  return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat("\"", Sv(text), "\" is not a duration (try 90s, 1h30m, 250ms, 2d)"));
  const std::string trimmed(absl::StripAsciiWhitespace(Sv(text)));
  absl::string_view rest = trimmed;
  absl::Duration total = absl::ZeroDuration();
  const size_t days_end = rest.find('d');
  if (days_end != absl::string_view::npos) {
    double days = 0;
    const absl::string_view number = rest.substr(0, days_end);
    if (number.empty() || !absl::ascii_isdigit(number[0]) || !absl::SimpleAtod(number, &days)) {
      return refused;
    }
    total = absl::Hours(24) * days;
    rest.remove_prefix(days_end + 1);
    if (rest.empty()) {
      return total;
    }
  }
  absl::Duration small;
  // ParseDuration takes signs and "inf", which no setting of ours means.
  if (rest.empty() || !absl::ascii_isdigit(rest[0]) || !absl::ParseDuration(rest, &small)) {
    return refused;
  }
  return total + small;
}

std::string FormatCount(double value) {
  struct Scale {
    double from;
    double divisor;
    const char* suffix;
  };
  // `from` is where three digits of the smaller unit would round up to four.
  static constexpr Scale kScales[] = {
      {999.5e9, 1e12, "T"}, {999.5e6, 1e9, "B"}, {999.5e3, 1e6, "M"}, {999.5, 1e3, "k"}};
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
  }
  const double magnitude = std::abs(value);
  for (const Scale& scale : kScales) {
    if (magnitude >= scale.from) {
      const double scaled = value / scale.divisor;
      const double digits = std::abs(scaled);
      const int decimals = digits < 9.995 ? 2 : (digits < 99.95 ? 1 : 0);
      return absl::StrFormat("%.*f%s", decimals, scaled, scale.suffix);
    }
  }
  if (value == std::floor(value)) {
    return absl::StrFormat("%.0f", value);
  }
  return absl::StrFormat("%.*f", magnitude < 9.995 ? 2 : (magnitude < 99.95 ? 1 : 0), value);
}

std::string FormatTokensPerSecond(double rate) {
  return absl::StrCat(FormatCount(rate), " tok/s");
}

}  // namespace hearth
