// Scalars of the job file: strict reading (no YAML 1.1 surprises) and writing that reads back to
// the same value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace hearth::config {

// A scalar as it stands in the file. `quoted` covers all styles but the plain one.
struct Scalar {
  std::string text;
  bool quoted = false;
};

// kInvalidArgument with a sentence for people, without field or place.
//
// Decimal integers; also "1e3" and "2.0", which are integral. Refused: quotes, leading zeros
// (YAML 1.1 reads 010 as 8), hex, '_'.
absl::StatusOr<int64_t> ParseInteger(const Scalar& scalar);
// Decimal numbers with optional exponent, .inf and .nan.
absl::StatusOr<double> ParseNumber(const Scalar& scalar);
// Only true and false: yes, no, on and off are refused.
absl::StatusOr<bool> ParseBool(const Scalar& scalar);
// "48h", "1h30m", "90s", "1.5s"; a unit is required.
absl::StatusOr<google::protobuf::Duration> ParseDuration(const Scalar& scalar);
// RFC 3339, "2026-11-26T22:00:00+01:00" or "...Z": the offset is required, as nobody else knows the
// writer's time zone. Years 1..9999.
absl::StatusOr<google::protobuf::Timestamp> ParseTimestamp(const Scalar& scalar);

// Reads back to the same double; without an exponent from 1e-5 to 1e15, else with a '.' before it.
std::string FormatNumber(double value);
// In the largest of h, m, s that gives a whole number.
std::string FormatDuration(const google::protobuf::Duration& duration);
// In UTC: "2026-11-26T21:00:00Z", with nanoseconds where there are some.
std::string FormatTimestamp(const google::protobuf::Timestamp& time);
// Plain if every YAML reader reads it as this string, else in double quotes.
std::string FormatString(std::string_view text);

// `text` as errors show it: in quotes, control characters escaped, cut after 60 bytes.
std::string Shown(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace hearth::config
