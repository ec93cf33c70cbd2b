#include "worker/trainer/guard/guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace hearth::trainer {

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kSpike:
      return "spike";
    case Verdict::kNonFinite:
      return "non_finite";
  }
  return "good";
}

Guard::Guard(double sigma, int window, int lag)
    : sigma_(sigma),
      window_(static_cast<size_t>(std::max(window, 1))),
      ring_(window_ + static_cast<size_t>(lag), 0.0) {}

double Guard::LossLimit(int ignored) const {
  const auto skipped = static_cast<size_t>(ignored);
  if (sigma_ <= 0 || count_ < window_ + skipped) {
    return std::numeric_limits<double>::infinity();
  }
  // next_ is one behind the newest.
  const auto at = [&](size_t i) {
    return ring_[(next_ + 2 * ring_.size() - 1 - skipped - i) % ring_.size()];
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

Verdict Guard::Judge(const StepFacts& facts) const {
  if (!std::isfinite(facts.loss) || !std::isfinite(facts.grad_norm) ||
      facts.nonfinite_gradients > 0) {
    return Verdict::kNonFinite;
  }
  return facts.loss > LossLimit() ? Verdict::kSpike : Verdict::kGood;
}

void Guard::Record(double loss) {
  ring_[next_] = loss;
  next_ = (next_ + 1) % ring_.size();
  count_ = std::min(count_ + 1, ring_.size());
}

std::vector<double> Guard::Losses() const {
  std::vector<double> losses;
  for (size_t i = 0; i < count_; ++i) {
    losses.push_back(ring_[(next_ + ring_.size() - count_ + i) % ring_.size()]);
  }
  return losses;
}

void Guard::RestoreLosses(const std::vector<double>& losses) {
  next_ = 0;
  count_ = 0;
  for (const double loss : losses) {
    Record(loss);
  }
}

std::string VerdictText(Verdict verdict, const StepFacts& facts, int64_t step) {
  switch (verdict) {
    case Verdict::kGood:
      return "";
    case Verdict::kSpike:
      return absl::StrFormat(
          "step %d: the loss jumped to %.6g, beyond train.spike_sigma deviations of the last "
          "train.spike_window losses; the update was not applied. Resume with a lower "
          "optimizer.lr, or with train.spike_sigma: 0 to accept it",
          step, facts.loss);
    case Verdict::kNonFinite:
      return absl::StrFormat(
          "step %d: the loss (%g) or the gradient (norm %g, %d elements) is not finite; the update "
          "was not applied. Resume from a checkpoint with a lower optimizer.lr",
          step, facts.loss, facts.grad_norm, facts.nonfinite_gradients);
  }
  return "";
}

}  // namespace hearth::trainer
