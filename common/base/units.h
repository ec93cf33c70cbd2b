// Quantities as people read and write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hearth {

// "512 B", "1.5 KiB", "2.0 GiB": one decimal, binary units.
std::string FormatBytes(int64_t bytes);

// "4096", "64KiB", "1.5 GiB", "2GB" (decimal units are powers of 1000, a bare K/M/G/T is binary).
// Never negative. kInvalidArgument: not a number, unknown unit, or more than fits 63 bits.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

// At most two units: "850ms", "12s", "3m05s", "2h07m", "5d03h". Negative ones get a '-'; infinite
// ones are "inf".
std::string HumanDuration(absl::Duration duration);

// "90s", "1h30m", "250ms" and also "2d", "1d12h". kInvalidArgument otherwise; never negative.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);

// "980", "12.3k", "4.56M", "1.20B": a count or rate with three significant digits.
std::string FormatCount(double value);

// FormatCount(rate) + " tok/s".
std::string FormatTokensPerSecond(double rate);

}  // namespace hearth
