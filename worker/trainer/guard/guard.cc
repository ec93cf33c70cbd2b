#include "worker/trainer/guard/guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/base/table_rows.h"

namespace hearth::trainer {

std::string_view VerdictName(Verdict verdict) {
  static constexpr EnumNames<Verdict, Verdict::kGradSpike> kNames = {"good", "spike", "non_finite",
                                                                     "grad_spike"};
  return kNames[verdict];
}

double Guard::Window::Limit(size_t ignored) const {
  // No limit before the window is full: a few losses say little about their spread.
  if (sigma_ <= 0 || count_ < window_ + ignored) {
    return std::numeric_limits<double>::infinity();
  }
  // next_ is one behind the newest.
  const auto at = [&](size_t i) {
    return ring_[(next_ + 2 * ring_.size() - 1 - ignored - i) % ring_.size()];
  };
  double mean = 0;
  for (size_t i = 0; i < window_; ++i) {
    mean += at(i);
  }
  mean /= static_cast<double>(window_);
  double variance = 0;
  for (size_t i = 0; i < window_; ++i) {
    variance += (at(i) - mean) * (at(i) - mean);
  }
  return mean + sigma_ * std::sqrt(variance / static_cast<double>(window_));
}

void Guard::Window::Push(double value) {
  ring_[next_] = value;
  next_ = (next_ + 1) % ring_.size();
  count_ = std::min(count_ + 1, ring_.size());
}

std::vector<double> Guard::Window::Values() const {
  std::vector<double> values;
  for (size_t i = 0; i < count_; ++i) {
    values.push_back(ring_[(next_ + ring_.size() - count_ + i) % ring_.size()]);
  }
  return values;
}

void Guard::Window::Restore(const std::vector<double>& values) {
  next_ = 0;
  count_ = 0;
  for (const double value : values) {
    Push(value);
  }
}

Guard::Guard(const GuardOptions& options)
    : losses_(options.sigma,
              static_cast<size_t>(std::max(options.window, 1)),
              static_cast<size_t>(options.lag)),
      log_norms_(options.grad_sigma,
                 static_cast<size_t>(std::max(options.window, 1)),
                 static_cast<size_t>(options.lag)) {}

StepLimits Guard::Limits(int ignored) const {
  const auto skipped = static_cast<size_t>(ignored);
  // Norms spread over orders of magnitude, so their window holds logarithms.
  return {losses_.Limit(skipped), std::exp(log_norms_.Limit(skipped))};
}

Verdict Guard::Judge(const StepFacts& facts) const {
  if (!std::isfinite(facts.loss) || !std::isfinite(facts.grad_norm) ||
      facts.nonfinite_gradients > 0) {
    return Verdict::kNonFinite;
  }
  const StepLimits limits = Limits();
  if (facts.loss > limits.loss) {
    return Verdict::kSpike;
  }
  return facts.grad_norm > limits.grad_norm ? Verdict::kGradSpike : Verdict::kGood;
}

void Guard::Record(const StepFacts& facts) {
  losses_.Push(facts.loss);
  // A norm of 0 has no logarithm.
  log_norms_.Push(std::log(std::max(facts.grad_norm, std::numeric_limits<double>::min())));
}

void Guard::Restore(const std::vector<double>& losses, const std::vector<double>& log_norms) {
  losses_.Restore(losses);
  log_norms_.Restore(log_norms);
}

std::string VerdictText(Verdict verdict, const StepFacts& facts, int64_t step) {
  switch (verdict) {
    case Verdict::kGood:
      return "";
    case Verdict::kSpike:
      return absl::StrFormat(
          "step %d: the loss jumped to %.6g, beyond train.spike_sigma deviations of the last "
          "train.spike_window losses; the update was not applied. A lower "
          "optimizer.lr may help; train.spike_sigma: 0 accepts such a loss",
          step, facts.loss);
    case Verdict::kGradSpike:
      return absl::StrFormat(
          "step %d: the gradient's norm jumped to %.6g, beyond train.spike_grad_sigma deviations "
          "of the last train.spike_window; the update was not applied. A lower "
          "optimizer.lr may help; train.spike_grad_sigma: 0 accepts such a norm",
          step, facts.grad_norm);
    case Verdict::kNonFinite:
      return absl::StrFormat(
          "step %d: the loss (%g) or the gradient (norm %g, %d elements) is not finite; %s. A "
          "lower optimizer.lr may help",
          step, facts.loss, facts.grad_norm, facts.nonfinite_gradients,
          facts.begun ? "layers before it were updated already (optimizer.fused), so the step "
                        "cannot be done again from here. Resume from the last checkpoint, which is "
                        "older than the step"
                      : "the update was not applied");
  }
  return "";
}

}  // namespace hearth::trainer
