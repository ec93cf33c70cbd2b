// Judges a step before its update: a loss or gradient that is not finite, or a loss or a gradient's
// norm far above the recent ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace hearth::trainer {

// The numbers are those of kernels/step_gate.
enum class Verdict : int32_t {
  kGood = 0,
  kSpike = 1,  // of the loss
  kNonFinite = 2,
  kGradSpike = 3,  // of the gradient's norm
};
std::string_view VerdictName(Verdict verdict);

// What the verdict is about, equal on all ranks.
struct StepFacts {
  double loss = 0;
  double grad_norm = 0;
  int64_t nonfinite_gradients = 0;  // elements
  // Some weights were updated before the step was judged (optimizer.fused): if it is not good, it
  // can be neither refused nor done again.
  bool begun = false;
};

// The limits above which a value is a spike; infinity: none.
struct StepLimits {
  double loss = 0;
  double grad_norm = 0;
};

struct GuardOptions {
  // A spike is a loss above mean + sigma * deviation of the last `window` recorded losses, once
  // that many are there; 0 turns it off.
  double sigma = 0;
  // The same for the logarithm of the gradient's norm.
  double grad_sigma = 0;
  int window = 64;
  int lag = 0;  // newest steps that Limits can be asked to leave out
};

// Depends only on the recorded steps, so that a replay or another rank decides alike. Judge and
// Record allocate nothing.
class Guard {
 public:
  explicit Guard(const GuardOptions& options);

  // A value above them is a spike; infinity while there is no limit. The `ignored` newest steps (at
  // most the lag) do not count: a step launched ahead of its predecessor's result must be judged as
  // a replay that knows it would.
  StepLimits Limits(int ignored = 0) const;
  Verdict Judge(const StepFacts& facts) const;
  // A step that was applied.
  void Record(const StepFacts& facts);

  // Recorded steps, oldest first; for checkpoints. The norms may be fewer (or none: a checkpoint of
  // before they were kept).
  std::vector<double> Losses() const { return losses_.Values(); }
  std::vector<double> LogNorms() const { return log_norms_.Values(); }
  void Restore(const std::vector<double>& losses, const std::vector<double>& log_norms);

 private:
  class Window {
   public:
    Window(double sigma, size_t window, size_t lag)
        : sigma_(sigma), window_(window), ring_(window + lag, 0.0) {}
    double Limit(size_t ignored) const;
    void Push(double value);
    std::vector<double> Values() const;
    void Restore(const std::vector<double>& values);

   private:
    double sigma_;
    size_t window_;
    std::vector<double> ring_;
    size_t next_ = 0;
    size_t count_ = 0;
  };

  Window losses_;
  Window log_norms_;
};

// What a person reads when the guard stops a job, which it does at once if facts.begun.
std::string VerdictText(Verdict verdict, const StepFacts& facts, int64_t step);

}  // namespace hearth::trainer
