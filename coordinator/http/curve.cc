#include "coordinator/http/curve.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kReadBytes = 256 << 10;      // at a time
constexpr int64_t kMaxBytesPerGet = 32 << 20;  // about 200,000 steps, a fraction of a second

void AppendNumber(v1::Metric::Curve curve, const CurveNumber& next, CurveNumber& number) {
  if (next.count == 0) {
    return;
  }
  if (number.count == 0 || curve == v1::Metric::LAST) {
    number.value = next.value;
  } else if (curve == v1::Metric::LARGEST) {
    number.value = std::max(number.value, next.value);
  } else {
    number.value += (next.value - number.value) * static_cast<double>(next.count) /
                    static_cast<double>(number.count + next.count);
  }
  number.count += next.count;
}

CurvePoint MakePoint(int64_t cursor, const v1::StepReport& step) {
  CurvePoint point;
  point.cursor = cursor;
  point.first_step = point.last_step = step.step();
  point.count = 1;
  point.epoch = step.epoch();
  for (const metrics::StepMetric* row : CurveRows()) {
    const std::optional<double> value = row->Value(step);
    point.numbers.push_back({value.value_or(0), value.has_value() ? 1 : 0});
  }
  for (const metrics::StepMetric* row : EntryCurveRows()) {
    std::map<std::string, CurveNumber>& by_label = point.entries.emplace_back();
    row->ForEach(step, [&by_label](const std::string& label, double value) {
      by_label[label] = {value, 1};
    });
  }
  return point;
}

std::vector<const metrics::StepMetric*> RowsWithCurve(bool of_entries) {
  std::vector<const metrics::StepMetric*> some;
  for (const metrics::StepMetric& row : metrics::StepMetrics()) {
    if (row.option().curve() != v1::Metric::NO_CURVE && row.of_entries() == of_entries) {
      some.push_back(&row);
    }
  }
  return some;
}

}  // namespace

const std::vector<const metrics::StepMetric*>& CurveRows() {
  static const auto* const rows = new std::vector(RowsWithCurve(/*of_entries=*/false));
  return *rows;
}

const std::vector<const metrics::StepMetric*>& EntryCurveRows() {
  static const auto* const rows = new std::vector(RowsWithCurve(/*of_entries=*/true));
  return *rows;
}

void CurvePoint::Append(const CurvePoint& next) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    AppendNumber(CurveRows()[i]->option().curve(), next.numbers[i], numbers[i]);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const auto& [label, number] : next.entries[i]) {
      AppendNumber(EntryCurveRows()[i]->option().curve(), number, entries[i][label]);
    }
  }
  last_step = next.last_step;
  count += next.count;
  epoch = next.epoch;
}

absl::Status Curve::Read(const SegmentLog& log, int64_t max_bytes) {
  complete_ = false;
  for (int64_t left = max_bytes; left > 0 && !complete_; left -= kReadBytes) {
    // A copy: after an error nothing of this part counts as read.
    SegmentLog::ReadState state = state_;
    HEARTH_ASSIGN_OR_RETURN(const SegmentLog::ReadResult read, log.Read(state, kReadBytes));
    complete_ = read.at_end;
    for (const SegmentLog::Record& record : read.records) {
      v1::StepReport step;
      v1::Rewind rewind;
      const bool is_rewind = record.kind == kRewindRecord;
      if (is_rewind ? !rewind.ParseFromString(record.payload)
                    : !step.ParseFromString(record.payload)) {
        return absl::DataLossError(absl::StrCat("history record ", record.cursor, " is damaged"));
      }
      if (!is_rewind) {
        AddStep(record.cursor, step);
        continue;
      }
      const SegmentLog::ReadState before = state;
      Rewind(record.cursor, rewind.to_step(), state);
      if (state.next != before.next) {  // goes on further back
        complete_ = false;
        break;
      }
    }
    state_ = state;
  }
  return absl::OkStatus();
}

void Curve::AddStep(int64_t cursor, const v1::StepReport& step) {
  if (step.step() < 1 || IsVoided(cursor, step.step()) ||
      (!points_.empty() && step.step() <= points_.back().last_step)) {
    return;
  }
  const CurvePoint point = MakePoint(cursor, step);
  // Groups go by the step's number, so that doubling the stride joins whole neighbours.
  const auto group = [this](int64_t number) { return (number - 1) / stride_; };
  if (!points_.empty() && group(points_.back().first_step) == group(point.first_step)) {
    points_.back().Append(point);
    return;
  }
  points_.push_back(point);
  while (points_.size() > max_points_) {
    DoubleStride();
  }
}

void Curve::DoubleStride() {
  stride_ *= 2;
  size_t kept = 0;
  for (size_t i = 1; i < points_.size(); ++i) {
    if ((points_[kept].first_step - 1) / stride_ == (points_[i].first_step - 1) / stride_) {
      points_[kept].Append(points_[i]);
    } else {
      points_[++kept] = points_[i];
    }
  }
  points_.resize(kept + 1);
}

void Curve::Rewind(int64_t cursor, int64_t to_step, SegmentLog::ReadState& state) {
  if (!rewinds_.empty() && rewinds_.back().first >= cursor) {
    return;  // read again: already accounted for
  }
  for (auto& [at, lowest] : rewinds_) {
    lowest = std::min(lowest, to_step);
  }
  rewinds_.emplace_back(cursor, to_step);
  while (!points_.empty() && points_.back().first_step > to_step) {
    points_.pop_back();
  }
  // A point that spans the rewind mixes steps that count with steps that do not: it is taken out
  // and read again from its first record.
  if (!points_.empty() && points_.back().last_step > to_step) {
    state = SegmentLog::ReadState{.next = points_.back().cursor};
    points_.pop_back();
  }
}

bool Curve::IsVoided(int64_t cursor, int64_t step) const {
  const auto later = std::upper_bound(rewinds_.begin(), rewinds_.end(),
                                      std::pair<int64_t, int64_t>(cursor, INT64_MAX));
  return later != rewinds_.end() && step > later->second;
}

std::vector<CurvePoint> Curve::Sample(int64_t since_step, size_t limit) const {
  const auto first = std::lower_bound(
      points_.begin(), points_.end(), since_step,
      [](const CurvePoint& point, int64_t step) { return point.last_step < step; });
  const size_t total = static_cast<size_t>(points_.end() - first);
  // Groups of `each`, so that a growing curve keeps its points rather than shifting them all.
  const size_t each = std::max<size_t>(1, (total + limit - 1) / limit);
  std::vector<CurvePoint> out;
  out.reserve(std::min(total, limit));
  for (size_t i = 0; i < total; ++i) {
    if (i % each == 0) {
      out.push_back(first[static_cast<std::ptrdiff_t>(i)]);
    } else {
      out.back().Append(first[static_cast<std::ptrdiff_t>(i)]);
    }
  }
  return out;
}

std::shared_ptr<CurveCache::Entry> CurveCache::EntryOf(
    const std::string& job_id, const std::shared_ptr<const SegmentLog>& log) {
  absl::MutexLock lock(&mu_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry->job_id == job_id; });
  if (found != entries_.end()) {
    // A job that was deleted and made again under the same id has another log.
    if ((*found)->log.lock() == log) {
      entries_.splice(entries_.begin(), entries_, found);
      return entries_.front();
    }
    entries_.erase(found);
  }
  auto entry = std::make_shared<Entry>();
  entry->job_id = job_id;
  entry->log = log;
  entries_.push_front(entry);
  if (entries_.size() > max_jobs_) {
    entries_.pop_back();
  }
  return entry;
}

void CurveCache::Forget(const std::shared_ptr<Entry>& entry) {
  absl::MutexLock lock(&mu_);
  entries_.remove(entry);
}

absl::StatusOr<CurveCache::Sampled> CurveCache::Get(const std::string& job_id,
                                                    int64_t since_step,
                                                    size_t limit) {
  const std::shared_ptr<const SegmentLog> log = find_log_(job_id);
  if (log == nullptr) {
    return Sampled{};
  }
  const std::shared_ptr<Entry> entry = EntryOf(job_id, log);
  absl::ReleasableMutexLock lock(&entry->mu);
  const absl::Status read = entry->curve.Read(*log, kMaxBytesPerGet);
  if (!read.ok()) {
    lock.Release();
    Forget(entry);  // do not show a half-read history
    return read;
  }
  return Sampled{entry->curve.Sample(since_step, limit), entry->curve.complete(),
                 entry->curve.rewinds()};
}

}  // namespace hearth::coordinator
