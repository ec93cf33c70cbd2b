// What a task has used of its device's energy counter.
#pragma once

#include <optional>

namespace hearth::worker {

// Counters are the device's own, in joules. Not thread-safe.
class EnergyMeter {
 public:
  // The task's first heartbeat, at that counter; later ones change nothing. 0 = not known.
  void Begin(double counter);
  // Used from Begin to that counter; 0 before Begin.
  double Total(double counter) const;
  // Used since the call before; 0 at the first, without a counter, and when the counter went back
  // (a driver that is loaded again counts from 0).
  double Since(std::optional<double> counter);

 private:
  double begin_ = 0.0;  // 0 = none yet
  std::optional<double> last_;
};

}  // namespace hearth::worker
