// Takes a pass through the units of the weights: acquires each before its first launch, announces
// the next (WeightUnits::ahead; else each is announced just before it is acquired), releases the
// one before. A unit that is still in its slot is not brought again.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/weight_units.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/weight_source.h"

namespace hearth::trainer {

// Allocates nothing after its construction. Not thread-safe.
class WeightWalk {
 public:
  // Without units weights are always in place, and no call does anything.
  explicit WeightWalk(spec::WeightUnits units);

  // A pass begins, forward and, with `backward`, back through the layers. `source` outlives it.
  // kFailedPrecondition: there are units and no source.
  absl::Status Begin(const kernels::Exec& exec, WeightSource* source, bool backward);
  // The launches that follow are those of a block of the model. Blocks come in the order of the
  // pass. Returns the unit that has arrived with it, -1: it was there. kInternal: a unit out of
  // turn.
  absl::StatusOr<int> Enter(const kernels::Exec& exec, int block);
  // All launches of the pass have been made.
  absl::Status End(const kernels::Exec& exec);

 private:
  // Announces the unit of a visit, unless its slot has it.
  absl::Status Announce(const kernels::Exec& exec, size_t visit);
  int& Holder(int unit);

  const spec::WeightUnits units_;
  const std::vector<int> visits_[2];  // [backward]
  WeightSource* source_ = nullptr;
  const std::vector<int>* pass_ = nullptr;  // one of visits_; null: outside a pass
  size_t next_ = 0;                         // visits made
  std::vector<int> holders_;                // by slot: the unit that it has, or awaits; -1: none
  int arriving_ = -1;                       // announced, not acquired
};

// Between passes: brings each unit in turn, and calls `visit` with its number when it is in its
// slot.
absl::Status VisitUnits(const kernels::Exec& exec,
                        WeightSource& source,
                        const spec::WeightUnits& units,
                        absl::FunctionRef<absl::Status(int unit)> visit);

}  // namespace hearth::trainer
