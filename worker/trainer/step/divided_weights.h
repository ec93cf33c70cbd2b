// Weights of which each rank keeps a part (ShardLevel kWeights): a unit arrives as its owners'
// parts are gathered into its slot, on the second stream beside what the ops compute.
//
//   own stream      | embedding      | layer 0        | layer 1        | ...
//   second stream   | gather layer 0 | gather layer 1 | gather layer 2 | ...
//
// Those in blocks (weights.store) are gathered as blocks, into a slot of arrival, and decoded on
// the own stream before the layer's launches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/model/weight_source.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// All ranks make the same calls in the same order, and in the same order with those of the
// GradientExchange, whose stream this shares. Engine, collective and exchange outlive it; destroy
// graphs that hold its launches first. Not thread-safe.
class DividedWeights : public WeightSource {
 public:
  // `beside`: the second stream. `exchanges`: false measures what a step takes without waiting for
  // other ranks: each then has its own part, and the other parts hold arbitrary values.
  static absl::StatusOr<std::unique_ptr<DividedWeights>> New(Engine& engine,
                                                             Collective& comm,
                                                             const kernels::Exec& beside,
                                                             bool exchanges);

  absl::Status Begin(const kernels::Exec& exec) override;
  absl::Status Announce(const kernels::Exec& exec, int unit) override;
  absl::Status Acquire(const kernels::Exec& exec, int unit) override;
  absl::Status Release(const kernels::Exec& exec, int unit) override;

  // Bytes that this rank sends in a pass forward and back.
  int64_t BytesPerPass() const;

 private:
  DividedWeights(Engine& engine, Collective& comm, const kernels::Exec& beside, bool exchanges)
      : engine_(engine), comm_(comm), beside_(beside), exchanges_(exchanges) {}
  const spec::WeightUnit& Unit(int unit) const {
    return engine_.parameters().units().units[static_cast<size_t>(unit)];
  }
  // Launches so far are the last that use the slot.
  absl::Status Free(const kernels::Exec& exec, int slot);
  // Beside: the other ranks' parts, where this rank's own lie already.
  absl::Status Gather(const std::vector<ParameterStore::UnitPart>& parts);

  Engine& engine_;
  Collective& comm_;
  const kernels::Exec beside_;
  const bool exchanges_;
  std::unique_ptr<kernels::Event> begun_;
  std::vector<std::unique_ptr<kernels::Event>> arrived_;   // by unit
  std::vector<std::unique_ptr<kernels::Event>> released_;  // by slot
  std::vector<const kernels::Event*> free_;                // by slot: free from then on
  int packed_ = -1;                                        // the unit that arrives and is unpacked
};

}  // namespace hearth::trainer
