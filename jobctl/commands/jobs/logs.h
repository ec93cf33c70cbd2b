// Selects and prints lines of a job's log.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hearth/v1/job.pb.h"
#include "re2/re2.h"

namespace hearth::jobctl {

class LogFilter {
 public:
  // `since`: how long before `now`, or a time; `grep`: an RE2 expression for the text; "" = all.
  // `epoch`: the gang start, 0 = all. kInvalidArgument: neither of them, not an expression.
  static absl::StatusOr<LogFilter> Make(const std::string& since,
                                        const std::string& grep,
                                        absl::Time now,
                                        int64_t epoch = 0);
  bool Wants(const v1::LogLine& line) const;

 private:
  absl::Time since_ = absl::InfinitePast();
  std::unique_ptr<RE2> grep_;  // null = all
  int64_t epoch_ = 0;
};

// "[JOB eEPOCH rRANK LEVEL] text\n", with the time before it if wanted. One line whatever is in it:
// control characters are escaped.
std::string LogLineText(const std::string& job_id, const v1::LogLine& line, bool timestamps);
// One JSON object and a line end: time, job_id, epoch, rank, level, text, cursor.
std::string LogLineJson(const std::string& job_id, const v1::LogLine& line);

}  // namespace hearth::jobctl
