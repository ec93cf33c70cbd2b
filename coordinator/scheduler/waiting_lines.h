// The jobs that wait for workers, in lines of equal demand.
//
// A plan looks at the heads of the lines: once a head has to wait, so has the rest of its line, for
// one reason. So neither a plan nor a tick grows with the number of jobs that wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/scheduler/demand.h"

namespace hearth::coordinator {

// Where a job stands: by its turn, then higher priority first, then by id. PlaceInQueue makes them.
struct QueuePlace {
  // The submit time, earlier by the aging interval for each level of priority. It never changes, so
  // a job is overtaken only by jobs that are submitted less than that much later: none starves.
  absl::Time turn;
  int64_t priority = 0;
  std::string job_id;

  friend bool operator<(const QueuePlace& a, const QueuePlace& b) {
    return std::tie(a.turn, b.priority, a.job_id) < std::tie(b.turn, a.priority, b.job_id);
  }
  friend bool operator==(const QueuePlace& a, const QueuePlace& b) = default;
};

// A day of waiting counts as much as one level of priority.
inline constexpr absl::Duration kDefaultAging = absl::Hours(24);

// `queue_time`: when the job was submitted, by a clock that does not jump. `aging` >= 0: how much
// longer a job must have waited to go ahead of one whose priority is one higher; 0 = never.
QueuePlace PlaceInQueue(int64_t priority,
                        absl::Time queue_time,
                        std::string job_id,
                        absl::Duration aging);

struct WaitText {
  std::string code;
  std::string reason;

  friend bool operator==(const WaitText& a, const WaitText& b) = default;
};

// Not thread-safe.
class WaitingLines {
 public:
  class Line {
   public:
    // In queue order; never empty.
    const std::set<QueuePlace>& places() const { return places_; }

   private:
    friend class WaitingLines;

    std::set<QueuePlace> places_;
    WaitText text_;                   // the code is empty until a plan has looked at the line
    std::optional<QueuePlace> next_;  // jobs from there on may not say `text_`
    std::set<QueuePlace> untold_;     // jobs that may not say it either
  };
  using Lines = std::map<Demand, Line>;

  const Lines& lines() const { return lines_; }
  size_t size() const { return where_.size(); }
  bool empty() const { return where_.empty(); }
  bool Has(const std::string& job_id) const { return where_.contains(job_id); }

  // The job waits from now on, or what it asks for or its place has changed.
  void Put(const Demand& demand, const QueuePlace& place);
  // It waits no longer; nothing happens if it did not.
  void Remove(const std::string& job_id);

  // Why the jobs of a line wait. They are told a few at a time: a long line takes several calls of
  // TakeUntold.
  //
  // A plan is being made: texts of single jobs no longer hold.
  void BeginTexts();
  // Until the next plan this job has a text of its own, not that of its line.
  void SpokenFor(const std::string& job_id);
  // Nothing happens when there is no such line.
  void SetText(const Demand& demand, const WaitText& text);
  // ... of all lines, for a reason that is not the scheduler's.
  void SetTextOfAll(const WaitText& text);
  // At most `most` jobs that may not say their line's text, with that text; they are told now.
  std::vector<std::pair<std::string, WaitText>> TakeUntold(size_t most);

 private:
  struct Where {
    Lines::iterator line;
    QueuePlace place;
  };
  static void SetText(Line& line, const WaitText& text);

  Lines lines_;
  std::unordered_map<std::string, Where> where_;  // by job id
  std::set<std::string> spoken_for_;
};

}  // namespace hearth::coordinator
