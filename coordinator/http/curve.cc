#include "coordinator/http/curve.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kReadBytes = 256 << 10;      // at a time
constexpr int64_t kMaxBytesPerGet = 32 << 20;  // about 200,000 steps, a fraction of a second

double Mean(double a, int64_t a_count, double b, int64_t b_count) {
  return a + (b - a) * static_cast<double>(b_count) / static_cast<double>(a_count + b_count);
}

// Reports say 0 for what was not measured.
MeanOfMeasured Measured(double value) {
  return value == 0.0 ? MeanOfMeasured{} : MeanOfMeasured{.mean = value, .count = 1};
}

CurvePoint MakePoint(int64_t cursor, const v1::StepReport& step) {
  CurvePoint point;
  point.cursor = cursor;
  point.first_step = point.last_step = step.step();
  point.count = 1;
  point.epoch = step.epoch();
  point.time = static_cast<double>(step.time().seconds()) + step.time().nanos() * 1e-9;
  point.loss = step.loss();
  point.has_validation = step.has_validation_loss();
  point.validation_loss = step.validation_loss();
  point.grad_norm = step.grad_norm();
  point.learning_rate = step.learning_rate();
  point.tokens = static_cast<double>(step.tokens());
  point.tokens_per_second = step.tokens_per_second();
  point.step_seconds = step.step_seconds();
  point.mfu = Measured(step.mfu());
  point.memory_bytes = static_cast<double>(step.memory_bytes());
  point.power_watts = Measured(step.power_watts());
  return point;
}

}  // namespace

void MeanOfMeasured::Append(const MeanOfMeasured& next) {
  if (next.count > 0) {
    mean = Mean(mean, count, next.mean, next.count);
    count += next.count;
  }
}

void CurvePoint::Append(const CurvePoint& next) {
  loss = Mean(loss, count, next.loss, next.count);
  grad_norm = Mean(grad_norm, count, next.grad_norm, next.count);
  tokens_per_second = Mean(tokens_per_second, count, next.tokens_per_second, next.count);
  step_seconds = Mean(step_seconds, count, next.step_seconds, next.count);
  mfu.Append(next.mfu);
  power_watts.Append(next.power_watts);
  memory_bytes = std::max(memory_bytes, next.memory_bytes);
  if (next.has_validation) {
    has_validation = true;
    validation_loss = next.validation_loss;
  }
  last_step = next.last_step;
  count += next.count;
  epoch = next.epoch;
  time = next.time;
  learning_rate = next.learning_rate;
  tokens = next.tokens;
}

absl::Status Curve::Read(const SegmentLog& log, int64_t max_bytes) {
  complete_ = false;
  for (int64_t left = max_bytes; left > 0 && !complete_; left -= kReadBytes) {
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
    Forget(entry);  // what was half taken in is not shown
    return read;
  }
  return Sampled{entry->curve.Sample(since_step, limit), entry->curve.complete(),
                 entry->curve.rewinds()};
}

}  // namespace hearth::coordinator
