// How fast kernels run on a GPU that is as busy as in a step, for `bench --calibrate`. A GPU at its
// power limit lowers its clock, by what it has computed over the last milliseconds, and a warm one
// by more than a cold one; a kernel timed after a pause is faster than the same kernel in a step.
// So nothing here pauses: two rounds of work are always queued, what the host prepares it prepares
// beside them, and what was timed before the clock has settled does not count. Only on a GPU; calls
// wait for the stream.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

using KernelCall = std::function<absl::Status()>;

// Some calls of a kernel in a graph.
struct KernelRow {
  std::unique_ptr<kernels::Graph> graph;
  int calls = 0;
};
// What runs after each row that is timed, in this order.
using KernelRows = std::vector<const KernelRow*>;

class LoadMeter {
 public:
  // `joules`: a counter of the GPU's energy that only rises; 0 if there is none.
  LoadMeter(const kernels::Exec& exec, std::function<double()> joules)
      : exec_(exec), joules_(std::move(joules)) {}

  struct Rate {
    double ms = 0;     // median of a call
    double watts = 0;  // over all of the time; 0: not known
  };

  // As many calls as take about `milliseconds`, at least one. A call before them may choose plans,
  // which takes time. While calls are counted and recorded, `meanwhile` runs.
  absl::StatusOr<KernelRow> Row(const KernelCall& call,
                                double milliseconds,
                                const KernelRows& meanwhile = {}) const;

  // Rounds of `rows` for `seconds`.
  absl::Status Load(const KernelRows& rows, double seconds) const;

  // The call again and again for `seconds`.
  absl::StatusOr<Rate> Repeat(const KernelCall& call, double seconds) const;
  // The row again and again for `seconds`; after each `rest`, whose time does not count.
  // `beside_end` is called while the last rounds run.
  absl::StatusOr<Rate> RepeatAmong(const KernelRow& row,
                                   const KernelRows& rest,
                                   double seconds,
                                   const std::function<void()>& beside_end = {}) const;

 private:
  absl::Status Launch(const KernelRows& rows) const;

  const kernels::Exec& exec_;
  std::function<double()> joules_;
};

}  // namespace hearth::trainer
