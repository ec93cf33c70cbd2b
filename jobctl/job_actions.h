// Pieces that several commands share.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/command.h"

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

// On an ambiguous network failure (UNAVAILABLE, DEADLINE_EXCEEDED): adds the request id and that
// repeating is safe.
absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id);

// Reads the job file, applies --set in order.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& assignments);

}  // namespace hearth::jobctl
