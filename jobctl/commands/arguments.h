// Reading arguments, and asking before something is lost.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hearth::jobctl {

// "90s", "10m", "48h"; empty = zero. kInvalidArgument names the option.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text, std::string_view option);

// Repeated key=value options to a map; kInvalidArgument names the option and the text.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    const std::vector<std::string>& texts, std::string_view option);

// Asks "`question` [y/N]" on a terminal. kCancelled: no; kFailedPrecondition: no terminal, `needs`
// says for what --yes is missing.
absl::Status Confirm(const std::string& question, const std::string& needs);

// Whole file, or standard input for "-".
absl::StatusOr<std::string> ReadInput(const std::string& path);

// How long before `now` ("10m"); a date ("2026-01-31": its midnight) or a date and a time
// ("2026-01-31 17:05", with or without seconds, with a blank or a T) in `zone`; or RFC 3339, which
// has its own offset. kInvalidArgument names the option.
absl::StatusOr<absl::Time> ParseSince(const std::string& text,
                                      absl::Time now,
                                      absl::TimeZone zone,
                                      std::string_view option);

// A time that has not come yet: "22:00" or "22:00:30", the next of these in `zone`; "+2h", that
// long after `now`; "2026-01-31 17:05", with or without seconds, in `zone`; or RFC 3339, which has
// its own offset.
// kInvalidArgument names the option: none of these, over already, or a local time that does not
// exist or exists twice because the clocks change.
absl::StatusOr<absl::Time> ParseStartTime(const std::string& text,
                                          absl::Time now,
                                          absl::TimeZone zone,
                                          std::string_view option);

// What is wrong with a comma-separated list of job states, in any case ("running,queued"): the
// first word that is none, with what was probably meant; "" = nothing.
std::string WrongState(const std::string& states);

// On an ambiguous network failure (UNAVAILABLE, DEADLINE_EXCEEDED): adds the request id and that
// repeating is safe.
absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id);

}  // namespace hearth::jobctl
