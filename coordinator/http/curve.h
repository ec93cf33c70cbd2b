// A job's step history as a curve of bounded size: what the page draws, kept from one request to
// the next so that each reads only what is new.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics/step_metrics.h"
#include "coordinator/store/segment_log.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// Rows of a step's numbers that a curve has (Metric.Curve), in their order.
const std::vector<const metrics::StepMetric*>& CurveRows();
// Those of entries, which have a curve for each label.
const std::vector<const metrics::StepMetric*>& EntryCurveRows();

// What one number comes to over those steps of a point in which it was measured.
struct CurveNumber {
  double value = 0;
  int64_t count = 0;  // steps; 0 = not measured in any
};

// Consecutive steps first_step .. last_step taken together.
struct CurvePoint {
  int64_t cursor = 0;  // of the record of first_step
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t count =
      0;  // steps in it; below last_step - first_step + 1 only where history was dropped
  int64_t epoch = 0;                 // of last_step
  std::vector<CurveNumber> numbers;  // one for each of CurveRows(), as its Metric.Curve says
  // For each of EntryCurveRows(), by label.
  std::vector<std::map<std::string, CurveNumber>> entries;

  // Adds `next`, which begins after this ends.
  void Append(const CurvePoint& next);
};

// The history in force: steps that a resume discarded are left out, so every step is in it once.
// Steps are grouped by (step - 1) / stride; the stride doubles whenever there would be more than
// `max_points` groups. Not thread-safe.
class Curve {
 public:
  // max_points >= 2.
  explicit Curve(size_t max_points = 4096) : max_points_(max_points) {}

  // Adds up to about `max_bytes` of new records; `complete` says whether that was all. The log
  // must be the same at each call. kDataLoss: a damaged record; kNotFound: the job was deleted.
  absl::Status Read(const SegmentLog& log, int64_t max_bytes);
  bool complete() const { return complete_; }

  // Ascending, without overlap.
  const std::vector<CurvePoint>& points() const { return points_; }
  int64_t stride() const { return stride_; }
  // How often the history was rewound.
  int64_t rewinds() const { return static_cast<int64_t>(rewinds_.size()); }

  // At most `limit` (>= 1) points of those that hold a step >= since_step, neighbours taken
  // together.
  std::vector<CurvePoint> Sample(int64_t since_step, size_t limit) const;

 private:
  void AddStep(int64_t cursor, const v1::StepReport& step);
  // Drops steps > to_step. A group that holds both sides is read again from its first record.
  void Rewind(int64_t cursor, int64_t to_step, SegmentLog::ReadState& state);
  bool IsVoided(int64_t cursor, int64_t step) const;
  void DoubleStride();

  const size_t max_points_;
  SegmentLog::ReadState state_;
  bool complete_ = false;
  int64_t stride_ = 1;
  std::vector<CurvePoint> points_;
  // (cursor, lowest to_step of the rewind there and all later ones), ascending in both.
  std::vector<std::pair<int64_t, int64_t>> rewinds_;
};

// Curves of the jobs that were looked at last. Thread-safe; requests for different jobs do not wait
// for each other's reading.
class CurveCache {
 public:
  using FindLog = std::function<std::shared_ptr<const SegmentLog>(std::string_view job_id)>;

  CurveCache(FindLog find_log, size_t max_jobs)
      : find_log_(std::move(find_log)), max_jobs_(max_jobs) {}

  struct Sampled {
    std::vector<CurvePoint> points;
    bool complete = true;  // false: ask again, there is more to read
    int64_t rewinds = 0;
  };
  // Brings the job's curve up to date and samples it; empty when it has no history. Errors as
  // Curve::Read.
  absl::StatusOr<Sampled> Get(const std::string& job_id, int64_t since_step, size_t limit)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string job_id;
    std::weak_ptr<const SegmentLog> log;  // another one: the job was deleted and made again
    absl::Mutex mu;
    Curve curve ABSL_GUARDED_BY(mu);
  };
  std::shared_ptr<Entry> EntryOf(const std::string& job_id,
                                 const std::shared_ptr<const SegmentLog>& log)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(const std::shared_ptr<Entry>& entry) ABSL_LOCKS_EXCLUDED(mu_);

  const FindLog find_log_;
  const size_t max_jobs_;
  absl::Mutex mu_;
  std::list<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);  // last used first
};

}  // namespace hearth::coordinator
