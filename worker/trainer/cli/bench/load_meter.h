// How fast kernels run on a GPU that is as busy as in a step, for `bench --calibrate`. A GPU at its
// power limit lowers its clock, by what it has computed over the last milliseconds; a kernel timed
// after a pause is faster than the same kernel in a step. So nothing here pauses: two rounds of
// work are always queued, and what was timed before the clock has settled does not count. Only on a
// GPU; calls wait for the stream.
#pragma once

#include <functional>
#include <memory>

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

class LoadMeter {
 public:
  // `joules`: a counter of the GPU's energy that only rises; 0 if there is none.
  LoadMeter(const kernels::Exec& exec, std::function<double()> joules)
      : exec_(exec), joules_(std::move(joules)) {}

  struct Rate {
    double ms = 0;     // median of a call
    double watts = 0;  // over all of the time; 0: not known
  };

  // As many calls as take about `milliseconds`. One before them may choose plans, which takes time.
  absl::StatusOr<KernelRow> Row(const KernelCall& call, double milliseconds) const;

  // The call again and again for `seconds`; after each row of it `rest`, if there is one, whose
  // time does not count.
  absl::StatusOr<Rate> Repeat(const KernelCall& call, double seconds) const;
  absl::StatusOr<Rate> RepeatAmong(const KernelCall& call,
                                   double row_ms,
                                   const KernelRow& rest,
                                   double seconds) const;

 private:
  absl::StatusOr<Rate> Run(const KernelRow& row, const KernelRow* rest, double seconds) const;

  const kernels::Exec& exec_;
  std::function<double()> joules_;
};

}  // namespace hearth::trainer
