// Where the weights that products read come from. The model is cut into units
// (common/spec/plan/weight_units.h); those of a unit are in their place (ParameterStore::weight)
// between Acquire and Release, and the next unit is announced while this one computes:
//
//   exec's stream   | Acquire 0, launches | Release 0, Acquire 1, launches | Release 1, ...
//   source          | 1 arrives           | 2 arrives                      |
//
// Units that do not go ahead (WeightUnits::ahead) are announced just before they are acquired.
//
// Which units a pass needs, and when, is WeightWalk's; a source knows only how one arrives.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::trainer {

// Called for one pass at a time, by all ranks alike. No call waits for a GPU. Not thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A pass begins: no unit is in its slot, and launches so far are done with all slots.
  virtual absl::Status Begin(const kernels::Exec& exec) = 0;
  // The unit is acquired soon: it may begin to arrive. Its slot is free: whatever was there has
  // been released. A unit that is unpacked (WeightUnit::unpacked) only arrives: what is in its slot
  // may still be read, and is replaced when the unit is acquired.
  virtual absl::Status Announce(const kernels::Exec& exec, int unit) = 0;
  // The launches that follow may read the weights of the unit: it was announced, or it was released
  // and nothing else was announced for its slot.
  virtual absl::Status Acquire(const kernels::Exec& exec, int unit) = 0;
  // The launches so far are the last that read them.
  virtual absl::Status Release(const kernels::Exec& exec, int unit) = 0;
};

}  // namespace hearth::trainer
