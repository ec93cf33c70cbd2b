// Judges a step before its update: a loss or gradient that is not finite, or a loss far above the
// recent ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace hearth::trainer {

enum class Verdict : int32_t {
  kGood = 0,
  kSpike = 1,  // the larger verdict wins over the ranks (MAX)
  kNonFinite = 2,
};
std::string_view VerdictName(Verdict verdict);

// What the verdict is about, equal on all ranks.
struct StepFacts {
  double loss = 0;
  double grad_norm = 0;
  int64_t nonfinite_gradients = 0;  // elements
};

// A function of the recorded losses alone, so that a replay or another rank decides alike. Judge
// and Record allocate nothing.
class Guard {
 public:
  // A spike is a loss above mean + sigma * deviation of the last `window` recorded losses, once
  // that many are there; sigma 0 turns it off. `lag`: newest losses that LossLimit can be asked to
  // leave out.
  Guard(double sigma, int window, int lag = 0);

  Verdict Judge(const StepFacts& facts) const;
  // Losses above it are spikes; infinity while there is no limit. The `ignored` newest losses (at
  // most the lag) do not count: a step launched ahead of its predecessor's loss must be judged as a
  // replay that knows it would.
  double LossLimit(int ignored = 0) const;
  // The loss of a step that was applied.
  void Record(double loss);

  // Recorded losses, oldest first; for checkpoints.
  std::vector<double> Losses() const;
  void RestoreLosses(const std::vector<double>& losses);

 private:
  double sigma_;
  size_t window_;
  std::vector<double> ring_;
  size_t next_ = 0;
  size_t count_ = 0;
};

// What a person reads when the guard stops a job.
std::string VerdictText(Verdict verdict, const StepFacts& facts, int64_t step);

}  // namespace hearth::trainer
