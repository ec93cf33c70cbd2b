// Names the task that a thread's log lines are about.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::log {

// While an object lives, JSON lines of its thread have the keys job_id, epoch and rank, each of the
// last two only where it is >= 0; lines of text stay as they are. Scopes nest; the innermost
// counts. Must end in the thread that began it.
class TaskScope {
 public:
  TaskScope(std::string_view job_id, int64_t epoch, int64_t rank = -1);
  ~TaskScope();
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

  // The innermost of this thread, or null.
  static const TaskScope* Current();

  const std::string& job_id() const { return job_id_; }
  int64_t epoch() const { return epoch_; }
  int64_t rank() const { return rank_; }

 private:
  const std::string job_id_;
  const int64_t epoch_;
  const int64_t rank_;
  const TaskScope* const outer_;
};

}  // namespace hearth::log
