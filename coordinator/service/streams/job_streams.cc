#include "coordinator/service/streams/job_streams.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kReadBytes = 256 << 10;  // about the size of one message

absl::Status NoJob(const std::string& job_id) {
  return rpc::NotFoundError("job", job_id);
}

absl::Status Unparsable(const std::string& job_id, int64_t cursor) {
  return absl::DataLossError(absl::StrCat("job ", job_id, ": record ", cursor, " is damaged"));
}

// The next records of a job's log; nothing when the stream ends with `status`.
std::optional<SegmentLog::ReadResult> ReadOn(const std::string& job_id,
                                             const SegmentLog& log,
                                             SegmentLog::ReadState& state,
                                             absl::Status& status) {
  absl::StatusOr<SegmentLog::ReadResult> read = status.ok() ? log.Read(state, kReadBytes) : status;
  if (read.ok()) {
    return *std::move(read);
  }
  status = absl::IsNotFound(read.status()) ? NoJob(job_id) : read.status();
  return std::nullopt;
}

// Calls `see` with each record from `state` to the present end.
absl::Status ReadToEnd(const SegmentLog& log,
                       SegmentLog::ReadState& state,
                       const std::function<absl::Status(const SegmentLog::Record&)>& see) {
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const SegmentLog::ReadResult read, log.Read(state, kReadBytes));
    for (const SegmentLog::Record& record : read.records) {
      HEARTH_RETURN_IF_ERROR(see(record));
    }
    if (read.at_end) {
      return absl::OkStatus();
    }
  }
}

}  // namespace

WatchReactor::WatchReactor(Executor& executor, View& view, const v1::WatchJobRequest& request)
    : StreamReactor(executor), view_(view), job_id_(request.job_id()), cursor_(request.cursor()) {}

WatchReactor::Next WatchReactor::Produce(v1::WatchJobResponse& response, absl::Status& status) {
  const View::Changes changes = view_.ChangesSince(job_id_, cursor_);
  if (changes.job == nullptr) {
    status = sent_ == nullptr ? NoJob(job_id_) : absl::OkStatus();
    return Next::kEnd;
  }
  // A watcher without a cursor wants what comes; one with a cursor must get every event behind it,
  // or an error that says that some are gone.
  const bool from_now = sent_ == nullptr && cursor_ == 0;
  if (changes.compacted && !from_now) {
    status = rpc::MakeError(
        absl::StatusCode::kOutOfRange,
        absl::StrCat("events after cursor ", cursor_, " are no longer all kept; list them again"),
        "CURSOR_TOO_OLD");
    return Next::kEnd;
  }
  if (changes.job == sent_ && changes.events.empty()) {
    return Next::kWait;
  }
  sent_ = changes.job;
  *response.mutable_job() = changes.job->job();
  if (!changes.events.empty()) {
    cursor_ = changes.events.back()->revision();
  }
  // A job's revision may be above that of its last kept event: the next call must not send it
  // again.
  cursor_ = std::max(cursor_, changes.job->job().revision());
  if (!from_now) {
    for (const EventPtr& event : changes.events) {
      *response.add_events() = *event;
    }
  }
  response.set_cursor(cursor_);
  return Next::kWrite;
}

MetricsReactor::MetricsReactor(Executor& executor,
                               View& view,
                               Store& store,
                               const v1::StreamMetricsRequest& request)
    : StreamReactor(executor), view_(view), store_(store), request_(request) {
  state_.next = request.cursor() + 1;
}

absl::Status MetricsReactor::FindRewinds(const SegmentLog& log) {
  rewinds_known_ = true;
  SegmentLog::ReadState state;
  HEARTH_RETURN_IF_ERROR(ReadToEnd(log, state, [this](const SegmentLog::Record& record) {
    v1::Rewind rewind;
    if (record.kind == kRewindRecord) {
      if (!rewind.ParseFromString(record.payload)) {
        return Unparsable(request_.job_id(), record.cursor);
      }
      rewinds_.emplace_back(record.cursor, rewind.to_step());
    }
    rewinds_through_ = record.cursor;
    return absl::OkStatus();
  }));
  // From the last one back: each gets the lowest step that it or a later one went back to, so one
  // look at the next rewind decides about a step (IsVoided).
  for (size_t i = rewinds_.size(); i-- > 1;) {
    rewinds_[i - 1].second = std::min(rewinds_[i - 1].second, rewinds_[i].second);
  }
  return absl::OkStatus();
}

bool MetricsReactor::IsVoided(int64_t cursor, int64_t step) const {
  const auto later = std::upper_bound(rewinds_.begin(), rewinds_.end(),
                                      std::pair<int64_t, int64_t>(cursor, INT64_MAX));
  return later != rewinds_.end() && step > later->second;
}

MetricsReactor::Next MetricsReactor::Produce(v1::StreamMetricsResponse& response,
                                             absl::Status& status) {
  // The job is looked at before its history: a terminal job's history is complete.
  const JobPtr job = view_.FindJob(request_.job_id());
  if (job == nullptr) {
    status = NoJob(request_.job_id());
    return Next::kEnd;
  }
  const bool over = !request_.follow() || IsTerminal(job->job().state());
  const bool effective = request_.from_step() > 0;
  // One that goes on from a cursor has shown steps that were rewound since: it needs the rewinds.
  const bool leaves_out = effective && request_.cursor() == 0;
  const auto log = store_.Find(request_.job_id(), StreamKind::kHistory);
  while (log != nullptr) {
    if (leaves_out && !rewinds_known_) {
      status = FindRewinds(*log);
    }
    const std::optional<SegmentLog::ReadResult> read =
        ReadOn(request_.job_id(), *log, state_, status);
    if (!read.has_value()) {
      return Next::kEnd;
    }
    for (const SegmentLog::Record& record : read->records) {
      v1::MetricRecord out;
      out.set_cursor(record.cursor);
      const bool rewind = record.kind == kRewindRecord;
      if (rewind ? !out.mutable_rewind()->ParseFromString(record.payload)
                 : !out.mutable_step()->ParseFromString(record.payload)) {
        status = Unparsable(request_.job_id(), record.cursor);
        return Next::kEnd;
      }
      // With from_step, what was rewound before the stream began is left out together with its
      // rewinds.
      const bool old = leaves_out && record.cursor <= rewinds_through_;
      if ((old && (rewind || IsVoided(record.cursor, out.step().step()))) ||
          (effective && !rewind && out.step().step() < request_.from_step())) {
        continue;
      }
      *response.add_records() = std::move(out);
    }
    if (response.records_size() > 0) {
      return Next::kWrite;
    }
    if (read->at_end) {
      break;
    }
  }
  return over ? Next::kEnd : Next::kWait;
}

LogsReactor::LogsReactor(Executor& executor,
                         View& view,
                         Store& store,
                         const v1::StreamLogsRequest& request)
    : StreamReactor(executor), view_(view), store_(store), request_(request) {
  state_.next = request.cursor() + 1;
}

bool LogsReactor::Wanted(const v1::LogLine& line) const {
  return !request_.has_rank() || line.rank() == request_.rank();
}

absl::Status LogsReactor::SkipToTail(const SegmentLog& log) {
  tail_done_ = true;
  if (request_.tail() <= 0) {
    return absl::OkStatus();
  }
  std::deque<int64_t> last;  // cursors of the last matching lines
  SegmentLog::ReadState state = state_;
  HEARTH_RETURN_IF_ERROR(ReadToEnd(log, state, [&](const SegmentLog::Record& record) {
    v1::LogLine line;
    if (!line.ParseFromString(record.payload)) {
      return Unparsable(request_.job_id(), record.cursor);
    }
    if (Wanted(line)) {
      last.push_back(record.cursor);
      if (last.size() > static_cast<size_t>(request_.tail())) {
        last.pop_front();
      }
    }
    return absl::OkStatus();
  }));
  state_ = SegmentLog::ReadState{.next = last.empty() ? state.next : last.front()};
  return absl::OkStatus();
}

LogsReactor::Next LogsReactor::Produce(v1::StreamLogsResponse& response, absl::Status& status) {
  const JobPtr job = view_.FindJob(request_.job_id());
  if (job == nullptr) {
    status = NoJob(request_.job_id());
    return Next::kEnd;
  }
  // Looked at before the log, so that a job that has ended has its whole log there.
  const bool over = !request_.follow() || IsTerminal(job->job().state());
  const auto log = store_.Find(request_.job_id(), StreamKind::kLog);
  int64_t dropped = 0;
  while (log != nullptr) {
    if (!tail_done_) {
      status = SkipToTail(*log);
    }
    const std::optional<SegmentLog::ReadResult> read =
        ReadOn(request_.job_id(), *log, state_, status);
    if (!read.has_value()) {
      return Next::kEnd;
    }
    dropped += read->dropped;
    for (const SegmentLog::Record& record : read->records) {
      v1::LogLine line;
      if (!line.ParseFromString(record.payload)) {
        status = Unparsable(request_.job_id(), record.cursor);
        return Next::kEnd;
      }
      if (Wanted(line)) {
        line.set_cursor(record.cursor);
        *response.add_lines() = std::move(line);
      }
    }
    if (response.lines_size() > 0 || dropped > 0) {
      response.set_dropped(dropped);
      return Next::kWrite;
    }
    if (read->at_end) {
      break;
    }
  }
  return over ? Next::kEnd : Next::kWait;
}

}  // namespace hearth::coordinator
