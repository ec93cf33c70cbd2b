#include "coordinator/core/reports/job_logs.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/base/clip_text.h"

namespace hearth::coordinator {
namespace {

// Limit of a log line; longer ones are cut.
constexpr size_t kLineBytesMax = 64 << 10;

}  // namespace

void JobLogs::Append(JobState& job, int rank, const v1::LogBatch& logs) {
  LogAppend append;
  append.job_id = job.job().job_id();
  if (!job.log_rate.has_value()) {
    job.log_rate.emplace(options_.log_bytes_per_second, options_.log_burst_bytes);
  }
  // Lines that were lost leave a gap in the cursors, by which readers see it.
  int64_t cursor = job.record().log_cursor();
  const auto drop = [&append, &cursor](int64_t lines) {
    append.dropped += std::min(lines, std::numeric_limits<int64_t>::max() - append.dropped);
    cursor += std::min(lines, std::max<int64_t>(0, kCursorMax - cursor));
  };
  drop(std::max<int64_t>(0, logs.dropped()));
  for (const v1::LogLine& line : logs.lines()) {
    const size_t bytes = std::min(line.text().size(), kLineBytesMax);
    if (cursor >= kCursorMax || !job.log_rate->Take(static_cast<double>(bytes), turn_.mono())) {
      drop(1);
      continue;
    }
    append.lines.push_back(line);
    v1::LogLine& kept = append.lines.back();
    if (kept.text().size() > bytes) {
      kept.set_text(std::string(ClipBytes(line.text(), bytes)));
    }
    kept.set_epoch(job.job().epoch());
    kept.set_rank(rank);
    kept.set_cursor(++cursor);
  }
  job.set_log_cursor(cursor);
  turn_.effects().logs.push_back(std::move(append));
}

}  // namespace hearth::coordinator
