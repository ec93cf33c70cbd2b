#include "worker/daemon/agent/report_buffer.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace hearth::worker {

ReportBuffer::ReportBuffer(std::string job_id,
                           int64_t epoch,
                           int32_t rank,
                           const ReportLimits& limits)
    : job_id_(std::move(job_id)),
      epoch_(epoch),
      rank_(rank),
      limits_(limits),
      log_rate_(limits.log_bytes_per_second, limits.log_burst_bytes) {}

int64_t& ReportBuffer::BytesOf(Kind kind) {
  switch (kind) {
    case Kind::kLog:
      return log_bytes_;
    case Kind::kStep:
      return step_bytes_;
    case Kind::kOther:
      break;
  }
  return other_bytes_;
}

int64_t ReportBuffer::Add(v1::TaskReport report) {
  if (report.has_exit()) {
    // Whatever the rate of the log: the last lines say why it ended.
    FlushTail();
    SealLogs();
  }
  Kind kind = Kind::kOther;
  if (report.has_logs() && report.logs().lines_size() > 0) {
    kind = Kind::kLog;
  } else if (report.has_step()) {
    kind = Kind::kStep;
  }
  report.set_job_id(job_id_);
  report.set_epoch(epoch_);
  report.set_rank(rank_);
  report.set_seq(++last_seq_);
  entries_.push_back({last_seq_, kind, report.SerializeAsString()});
  BytesOf(kind) += static_cast<int64_t>(entries_.back().bytes.size()) + kEntryOverhead;
  if (kind == Kind::kLog) {
    EnforceLogBound();
  } else if (kind == Kind::kStep) {
    EnforceStepBound();
  }
  return last_seq_;
}

void ReportBuffer::AddLog(v1::LogLine line, absl::Duration now) {
  const auto bytes = static_cast<int64_t>(line.text().size());
  if (tail_.empty() && log_rate_.Take(static_cast<double>(bytes), now)) {
    Open(std::move(line));
    return;
  }
  tail_bytes_ += bytes;
  tail_.push_back(std::move(line));
  while (tail_bytes_ > limits_.log_tail_bytes && tail_.size() > 1) {
    const auto lost = static_cast<int64_t>(tail_.front().text().size());
    tail_bytes_ -= lost;
    tail_.pop_front();
    // Counted with the next line that is taken in; the tail is never empty here.
    open_.set_dropped(open_.dropped() + 1);
    ++dropped_log_lines_;
    dropped_log_bytes_ += lost;
  }
}

void ReportBuffer::LetIn(absl::Duration now) {
  while (!tail_.empty() && log_rate_.Take(static_cast<double>(tail_.front().text().size()), now)) {
    tail_bytes_ -= static_cast<int64_t>(tail_.front().text().size());
    Open(std::move(tail_.front()));
    tail_.pop_front();
  }
}

void ReportBuffer::FlushTail() {
  for (v1::LogLine& line : tail_) {
    Open(std::move(line));
  }
  tail_.clear();
  tail_bytes_ = 0;
}

void ReportBuffer::Open(v1::LogLine line) {
  open_bytes_ += static_cast<int64_t>(line.ByteSizeLong());
  *open_.add_lines() = std::move(line);
  if (open_bytes_ >= limits_.batch_bytes) {
    SealLogs();
  }
}

bool ReportBuffer::SealLogs() {
  if (!has_open_logs()) {
    return false;
  }
  v1::TaskReport report;
  report.mutable_logs()->Swap(&open_);
  open_.Clear();
  open_bytes_ = 0;
  Add(std::move(report));
  return true;
}

void ReportBuffer::Ack(int64_t seq) {
  while (!entries_.empty() && entries_.front().seq <= seq) {
    const Entry& entry = entries_.front();
    BytesOf(entry.kind) -= static_cast<int64_t>(entry.bytes.size()) + kEntryOverhead;
    entries_.pop_front();
  }
}

std::optional<v1::TaskReport> ReportBuffer::After(int64_t seq) const {
  if (entries_.empty()) {
    return std::nullopt;
  }
  const int64_t index = std::max<int64_t>(0, seq + 1 - entries_.front().seq);
  if (index >= static_cast<int64_t>(entries_.size())) {
    return std::nullopt;
  }
  v1::TaskReport report;
  HEARTH_CHECK(report.ParseFromString(entries_[index].bytes), "own bytes parse");
  return report;
}

void ReportBuffer::Hollow(Entry& entry, int64_t dropped) {
  BytesOf(entry.kind) -= static_cast<int64_t>(entry.bytes.size()) + kEntryOverhead;
  // The entry keeps its number, so that acknowledgements go on without a gap.
  v1::TaskReport hollow;
  hollow.set_job_id(job_id_);
  hollow.set_epoch(epoch_);
  hollow.set_rank(rank_);
  hollow.set_seq(entry.seq);
  hollow.mutable_logs()->set_dropped(dropped);
  entry.kind = Kind::kOther;
  entry.bytes = hollow.SerializeAsString();
  other_bytes_ += static_cast<int64_t>(entry.bytes.size()) + kEntryOverhead;
}

void ReportBuffer::EnforceLogBound() {
  if (entries_.empty()) {
    return;
  }
  first_log_seq_ = std::max(first_log_seq_, entries_.front().seq);
  // The newest batch stays whatever its size: the last lines before a crash are the ones people
  // need.
  while (log_bytes_ > limits_.log_bytes && first_log_seq_ < last_seq_) {
    Entry& entry = entries_[first_log_seq_ - entries_.front().seq];
    ++first_log_seq_;
    if (entry.kind != Kind::kLog) {
      continue;
    }
    v1::TaskReport report;
    HEARTH_CHECK(report.ParseFromString(entry.bytes), "own bytes parse");
    const int64_t lines = report.logs().lines_size();
    dropped_log_lines_ += lines;
    for (const v1::LogLine& line : report.logs().lines()) {
      dropped_log_bytes_ += static_cast<int64_t>(line.text().size());
    }
    Hollow(entry, lines + report.logs().dropped());
  }
}

void ReportBuffer::EnforceStepBound() {
  first_step_seq_ = std::max(first_step_seq_, entries_.front().seq);
  while (step_bytes_ > limits_.step_bytes && first_step_seq_ < last_seq_) {
    Entry& entry = entries_[first_step_seq_ - entries_.front().seq];
    ++first_step_seq_;
    if (entry.kind == Kind::kStep) {
      ++dropped_steps_;
      Hollow(entry, 0);
    }
  }
}

}  // namespace hearth::worker
