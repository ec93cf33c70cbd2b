#include "common/config/scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace hearth::config {
namespace {

// google.protobuf.Duration allows this many seconds in either direction.
constexpr int64_t kMaxDurationSeconds = 315576000000;
// Those of google.protobuf.Timestamp: the years 1..9999.
constexpr int64_t kMinTimestampSeconds = -62135596800;
constexpr int64_t kMaxTimestampSeconds = 253402300799;

absl::Status Bad(const std::string& text) {
  return absl::InvalidArgumentError(text);
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// [-+]? digits [. digits] [e [-+]? digits], at least one digit before or after the point.
bool IsDecimal(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) {
      ++i;
    }
    return i - begin;
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
    ++i;
  }
  size_t mantissa = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    mantissa += digits();
  }
  if (mantissa == 0) {
    return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
      ++i;
    }
    if (digits() == 0) {
      return false;
    }
  }
  return i == text.size();
}

bool HasLeadingZero(std::string_view text) {
  const size_t first = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.size() > first + 1 && text[first] == '0' && IsDigit(text[first + 1]);
}

absl::Status CheckDecimal(const Scalar& scalar, std::string_view what) {
  const std::string shown = Shown(scalar.text);
  const std::string kind(what);
  if (scalar.quoted) {
    return Bad("expected " + kind + ", got the string " + shown + "; remove the quotes");
  }
  if (HasLeadingZero(scalar.text)) {
    return Bad(shown +
               " has a leading zero, which some YAML readers take as octal; write it without");
  }
  if (!IsDecimal(scalar.text)) {
    return Bad("expected " + kind + ", got " + shown);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Decimal(std::string_view text) {
  double value = 0.0;
  if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value) || std::isinf(value)) {
    return Bad(Shown(text) + " is too large");
  }
  return value;
}

// Words that YAML 1.1 or 1.2 readers take for something other than a string.
bool IsSpecialWord(std::string_view text) {
  const std::string word = absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
  for (const char* special : {"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf",
                              "-.inf", "+.inf", ".nan", "~"}) {
    if (word == special) {
      return true;
    }
  }
  return false;
}

bool IsPlainSafe(std::string_view text) {
  if (text.empty() || IsSpecialWord(text) || !(absl::ascii_isalpha(text[0]) || text[0] == '/')) {
    return false;
  }
  for (char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("/._-+@").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(const Scalar& scalar) {
  HEARTH_RETURN_IF_ERROR(CheckDecimal(scalar, "an integer"));
  int64_t value = 0;
  const std::string& text = scalar.text;
  if (text.find_first_of(".eE") == std::string::npos) {
    if (!absl::SimpleAtoi(text, &value)) {
      return Bad(Shown(text) + " does not fit into 64 bits");
    }
    return value;
  }
  HEARTH_ASSIGN_OR_RETURN(const double number, Decimal(text));
  // Beyond 2^53 a double no longer says which integer was meant.
  if (number != std::floor(number) || std::fabs(number) > 9007199254740992.0) {
    return Bad("expected an integer, got " + Shown(text));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<double> ParseNumber(const Scalar& scalar) {
  if (!scalar.quoted) {
    const std::string& text = scalar.text;
    if (text == ".inf" || text == "+.inf") {
      return std::numeric_limits<double>::infinity();
    }
    if (text == "-.inf") {
      return -std::numeric_limits<double>::infinity();
    }
    if (text == ".nan") {
      return std::numeric_limits<double>::quiet_NaN();
    }
  }
  HEARTH_RETURN_IF_ERROR(CheckDecimal(scalar, "a number"));
  return Decimal(scalar.text);
}

absl::StatusOr<bool> ParseBool(const Scalar& scalar) {
  if (!scalar.quoted && (scalar.text == "true" || scalar.text == "false")) {
    return scalar.text == "true";
  }
  return Bad("expected true or false, got " + std::string(scalar.quoted ? "the string " : "") +
             Shown(scalar.text));
}

absl::StatusOr<google::protobuf::Duration> ParseDuration(const Scalar& scalar) {
  absl::Duration duration;
  // absl would take a bare 0.
  const bool has_unit = !scalar.text.empty() && !IsDigit(scalar.text.back());
  if (!has_unit || !absl::ParseDuration(scalar.text, &duration) ||
      absl::AbsDuration(duration) > absl::Seconds(kMaxDurationSeconds)) {
    return Bad("expected a duration such as 48h, 30m or 90s, got " + Shown(scalar.text));
  }
  google::protobuf::Duration out;
  absl::Duration rest;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return out;
}

absl::StatusOr<google::protobuf::Timestamp> ParseTimestamp(const Scalar& scalar) {
  absl::Time time;
  std::string error;
  // absl reads a year of any length and spaces around the text.
  const bool whole = scalar.text.size() > 10 && IsDigit(scalar.text.front()) &&
                     scalar.text[4] == '-' && !absl::ascii_isspace(scalar.text.back());
  if (!whole || !absl::ParseTime(absl::RFC3339_full, scalar.text, &time, &error) ||
      absl::ToUnixSeconds(time) < kMinTimestampSeconds ||
      absl::ToUnixSeconds(time) > kMaxTimestampSeconds) {
    return Bad(
        "expected a time with its offset from UTC, such as 2026-11-26T22:00:00+01:00 or "
        "2026-11-26T21:00:00Z, got " +
        Shown(scalar.text));
  }
  google::protobuf::Timestamp out;
  out.set_seconds(absl::ToUnixSeconds(time));
  out.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(absl::ToUnixSeconds(time)))));
  return out;
}

std::string FormatNumber(double value) {
  if (std::isnan(value)) {
    return ".nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? ".inf" : "-.inf";
  }
  // The longest fixed form of this range has 5 zeros and 17 digits, or 15 digits before the point.
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0.0 || (magnitude >= 1e-5 && magnitude < 1e15);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(buffer, end);
  const size_t exponent = text.find('e');
  // YAML 1.1 readers take 1e-05 for a string: a number needs a point there.
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

std::string FormatDuration(const google::protobuf::Duration& duration) {
  const int64_t seconds = duration.seconds();
  if (duration.nanos() != 0) {
    const bool negative = seconds < 0 || duration.nanos() < 0;
    return absl::StrFormat("%s%ds%dns", negative ? "-" : "", std::abs(seconds),
                           std::abs(duration.nanos()));
  }
  if (seconds != 0 && seconds % 3600 == 0) {
    return absl::StrFormat("%dh", seconds / 3600);
  }
  if (seconds != 0 && seconds % 60 == 0) {
    return absl::StrFormat("%dm", seconds / 60);
  }
  return absl::StrFormat("%ds", seconds);
}

std::string FormatTimestamp(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%E*SZ",
                          absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                          absl::UTCTimeZone());
}

std::string FormatString(std::string_view text) {
  if (IsPlainSafe(text)) {
    return std::string(text);
  }
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::string_view rest = text.substr(i);
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += absl::StrFormat("\\x%02x", byte);
    } else if (rest.substr(0, 2) == "\xc2\x85") {  // next line
      out += "\\u0085";
      i += 1;
    } else if (rest.substr(0, 3) == "\xe2\x80\xa8" || rest.substr(0, 3) == "\xe2\x80\xa9") {
      out += rest[2] == '\xa8' ? "\\u2028" : "\\u2029";  // line and paragraph separator
      i += 2;
    } else if (rest.substr(0, 3) == "\xef\xbb\xbf") {  // byte order mark
      out += "\\ufeff";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out + '"';
}

std::string Shown(std::string_view text) {
  size_t size = std::min<size_t>(text.size(), 60);
  // Not within a UTF-8 sequence.
  while (size < text.size() && size > 0 &&
         (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  std::string shown = FormatString(text.substr(0, size));
  if (shown.front() != '"') {
    shown = '"' + shown + '"';
  }
  return size < text.size() ? shown + "..." : shown;
}

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || i + length > text.size()) {
      return false;
    }
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) {
        return false;
      }
    }
    const unsigned char second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    // Overlong forms, surrogates and code points beyond U+10FFFF.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace hearth::config
