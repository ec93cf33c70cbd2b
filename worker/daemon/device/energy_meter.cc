#include "worker/daemon/device/energy_meter.h"

#include <algorithm>

namespace hearth::worker {

void EnergyMeter::Begin(double counter) {
  if (begin_ == 0.0) {
    begin_ = counter;
  }
}

double EnergyMeter::Total(double counter) const {
  return begin_ == 0.0 ? 0.0 : std::max(0.0, counter - begin_);
}

double EnergyMeter::Since(std::optional<double> counter) {
  if (!counter.has_value()) {
    return 0.0;
  }
  // The counter starts again at 0 when the driver is loaded again.
  const double used = std::max(0.0, *counter - last_.value_or(*counter));
  last_ = counter;
  return used;
}

}  // namespace hearth::worker
