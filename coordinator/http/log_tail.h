// The newest lines of a job's log, for the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/store/segment_log.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// How many cursors a tail looks back at most, so that a rare rank does not cost the whole log.
inline constexpr int64_t kLogLookBack = 20'000;
// Bytes of text in one answer.
inline constexpr size_t kLogTailBytes = 1 << 20;

struct LogQuery {
  int64_t after = 0;  // only lines with a greater cursor
  size_t tail = 200;  // at most so many, >= 1: the newest
  std::optional<int32_t> rank = std::nullopt;
  int64_t epoch = 0;  // 0 = all
};

struct LogTail {
  std::vector<v1::LogLine> lines;  // oldest first, with their cursors
  // That of the last line read, wanted or not: what the next query names in `after`.
  int64_t cursor = 0;
  // Lines between `after` and the first one are left out, or were not looked at.
  bool more = false;
};

// The newest lines that `query` wants: at most `tail`, within kLogLookBack cursors and
// kLogTailBytes of text; at least one if there is one there. kDataLoss: a damaged record;
// kNotFound: the job was deleted.
absl::StatusOr<LogTail> ReadLogTail(const SegmentLog& log, const LogQuery& query);

}  // namespace hearth::coordinator
