// precision.trial: the first steps of a job in several recipes, and by their losses the one in
// which the job trains.
//
//   BF16 is run first, then the recipes of the ladder in its order, until
//   loss <= BF16's loss * (1 + max_gap)         the job trains in that recipe
//   none is left                                the job trains in BF16
//
// The loss is the held-out one after the last step where there is one, else the mean training loss
// of the last steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::trainer {

// Steps at the end of a run whose mean is its final training loss: a tenth, 1..200.
int64_t FinalLossWindow(int64_t steps);
// The mean of the last `window` losses, or of all if there are fewer; `losses` is not empty.
double MeanOfLast(absl::Span<const double> losses, int64_t window);
// loss / base - 1; empty unless both are there and finite and `base` is above 0.
std::optional<double> RelativeGap(const std::optional<double>& loss,
                                  const std::optional<double>& base);

// Whether `trial` has chosen a recipe for the job as it is.
bool HasChosen(const v1::JobSpec& job, const v1::PrecisionTrial& trial);

// A function of the job and of the runs, so that ranks and replays choose alike.
class Trial {
 public:
  // `job` is resolved and has a trial. `before`: what earlier trainers of the job found; a decision
  // in it stands, runs without one only if they were `made_with` the same.
  Trial(const v1::JobSpec& job, const std::string& made_with, const v1::PrecisionTrial& before);

  // The recipe to be run; empty once one is chosen.
  const std::string& next() const { return next_; }
  bool decided() const { return next_.empty(); }
  // The next one's run; its gap, or the problem if it has no gap, is filled in here.
  // kOutOfRange: BF16's own run has no loss, there is nothing to compare with.
  absl::Status Add(v1::PrecisionTrialRun run);

  const v1::PrecisionTrial& state() const { return state_; }

 private:
  bool Continues(const v1::PrecisionTrial& before) const;
  void Conclude();
  void Describe();

  const std::vector<std::string> recipes_;  // BF16 first
  v1::PrecisionTrial state_;
  std::string next_;
};

}  // namespace hearth::trainer
