#include "jobctl/commands/arguments.h"

#include <unistd.h>

#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/io/env.h"
#include "jobctl/views/output.h"

namespace hearth::jobctl {

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text, std::string_view option) {
  if (text.empty()) {
    return absl::ZeroDuration();
  }
  absl::StatusOr<absl::Duration> duration = ParseDuration(text);
  if (!duration.ok()) {
    return Annotate(duration.status(), option);
  }
  return duration;
}

absl::StatusOr<absl::Time> ParseSince(const std::string& text,
                                      absl::Time now,
                                      std::string_view option) {
  if (const absl::StatusOr<absl::Duration> ago = ParseDuration(text); ago.ok()) {
    return now - *ago;
  }
  absl::Time time;
  std::string error;
  // As commands print it, then RFC 3339.
  if (absl::ParseTime("%Y-%m-%d %H:%M:%S", text, absl::LocalTimeZone(), &time, &error) ||
      absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return time;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(option), " ", text,
                   ": expected how long ago (10m) or a time (2026-01-31 17:05:00)"));
}

absl::Status Confirm(const std::string& question, const std::string& needs) {
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(needs, "; without a terminal it needs --yes"));
  }
  WriteErr(absl::StrCat(question, " [y/N] "));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return absl::CancelledError("nothing was changed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    const std::vector<std::string>& texts, std::string_view option) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (pair.first.empty() || text.find('=') == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(option), ": '", text, "' is not key=value"));
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    return Env::Real().ReadFile(path);
  }
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id) {
  if (status.code() != absl::StatusCode::kUnavailable &&
      status.code() != absl::StatusCode::kDeadlineExceeded) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "\nIt is not known whether the coordinator took "
                                   "the request; it is safe to retry with --request-id ",
                                   request_id));
}

}  // namespace hearth::jobctl
