// What a task reported and the coordinator has not yet acknowledged.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/token_bucket.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::worker {

// Bounds of one task's buffer, in serialized bytes plus kEntryOverhead an entry.
struct ReportLimits {
  // Log lines. Beyond it the oldest lines go, and are counted in LogBatch.dropped.
  int64_t log_bytes = 8 << 20;
  // Step reports: about a million of them, more than a day without a coordinator at ten steps a
  // second. Beyond it the oldest go, counted. Everything else (run info, checkpoints, key-values,
  // the exit) is small and never dropped.
  int64_t step_bytes = 256 << 20;
  // A batch of log lines is sealed, that is given its number, at this size.
  int64_t batch_bytes = 64 << 10;
  // How fast a task may log: this many bytes a second after a burst. The newest `log_tail_bytes` of
  // the excess wait until there is room or the task ends; older lines are dropped and counted. So a
  // flood loses the middle of its log, but not its end, and does not load the coordinator.
  double log_bytes_per_second = 256 << 10;
  double log_burst_bytes = 4 << 20;
  int64_t log_tail_bytes = 256 << 10;
};

// Numbers the reports of one (job, epoch, rank) from 1 without gaps and keeps them until they are
// acknowledged. What a bound removes leaves an empty LogBatch with its number, so the numbers stay
// gapless and a re-sent number never changes meaning from one report to another. Log lines wait
// unnumbered in an open batch until it is full, asked for, or the task exits. Not thread-safe.
class ReportBuffer {
 public:
  static constexpr int64_t kEntryOverhead = 64;

  ReportBuffer(std::string job_id, int64_t epoch, int32_t rank, const ReportLimits& limits);

  // Numbers `report` (its payload is set; identity and seq are filled in) and appends it. A
  // TaskExit seals the open batch first. Returns the seq.
  int64_t Add(v1::TaskReport report);

  // `now` is monotonic.
  void AddLog(v1::LogLine line, absl::Duration now);
  // Takes in lines that wait for the rate, as far as there is room. Call it about once a second:
  // after a log falls silent nothing else would take them in, and taking each line of a flood by
  // itself would make a report of each.
  void LetIn(absl::Duration now);

  // Numbers the lines collected so far. False: there are none.
  bool SealLogs();

  // Forgets reports with a number <= seq. An ack of what was never sent is ignored beyond
  // last_seq().
  void Ack(int64_t seq);

  // The first kept report with a number > seq, or nothing.
  std::optional<v1::TaskReport> After(int64_t seq) const;

  int64_t last_seq() const { return last_seq_; }
  // 0 = nothing is kept.
  int64_t first_unacked_seq() const { return entries_.empty() ? 0 : entries_.front().seq; }
  bool has_open_logs() const { return open_.lines_size() > 0; }
  // Nothing kept, nothing open and nothing waiting.
  bool empty() const { return entries_.empty() && !has_open_logs() && tail_.empty(); }
  int64_t bytes() const {
    return log_bytes_ + step_bytes_ + other_bytes_ + open_bytes_ + tail_bytes_;
  }
  int64_t dropped_log_lines() const { return dropped_log_lines_; }
  int64_t dropped_log_bytes() const { return dropped_log_bytes_; }
  int64_t dropped_steps() const { return dropped_steps_; }

 private:
  enum class Kind { kLog, kStep, kOther };
  struct Entry {
    int64_t seq;
    Kind kind;
    std::string bytes;  // serialized TaskReport
  };

  int64_t& BytesOf(Kind kind);
  void Open(v1::LogLine line);
  // Takes in all that waits, ignoring the rate.
  void FlushTail();
  // Replaces the payload of `entry` by an empty LogBatch that counts `dropped` lines.
  void Hollow(Entry& entry, int64_t dropped);
  void EnforceLogBound();
  void EnforceStepBound();

  const std::string job_id_;
  const int64_t epoch_;
  const int32_t rank_;
  const ReportLimits limits_;
  std::deque<Entry> entries_;  // by seq, without gaps
  v1::LogBatch open_;
  TokenBucket log_rate_;
  std::deque<v1::LogLine> tail_;  // over the rate, oldest first
  int64_t tail_bytes_ = 0;
  int64_t last_seq_ = 0;
  int64_t log_bytes_ = 0;
  int64_t step_bytes_ = 0;
  int64_t other_bytes_ = 0;
  int64_t open_bytes_ = 0;
  // Entries with a smaller number hold no more lines or steps to drop.
  int64_t first_log_seq_ = 1;
  int64_t first_step_seq_ = 1;
  int64_t dropped_log_lines_ = 0;
  int64_t dropped_log_bytes_ = 0;
  int64_t dropped_steps_ = 0;
};

}  // namespace hearth::worker
