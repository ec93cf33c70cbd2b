#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace hearth::worker {

// A gang start of a job; a worker runs at most one rank of it.
struct TaskKey {
  std::string job_id;
  int64_t epoch = 0;

  auto operator<=>(const TaskKey&) const = default;  // NOLINT(modernize-use-nullptr)
  std::string ToString() const { return job_id + " e" + std::to_string(epoch); }
};

}  // namespace hearth::worker
