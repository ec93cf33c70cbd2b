// Moves what layers keep for backward to the host's memory and back (offload.activations). Layers
// use the spec::kKeptSlots slots in turn. If a later layer will take over a slot, the slot is
// copied to the host as soon as its layer has run forward. It is filled again as soon as the later
// layer is done with its backward pass:
//
//   own stream    | layer 0 | layer 1 | layer 2 | layer 3 | head | back 3 | back 2  | back 1  | ...
//   second stream |         | 0 goes  | 1 goes  |         |      |        | 1 comes | 0 comes |
//
// Layer 2 waits until layer 0's copy to the host is done. The backward pass of a layer waits until
// its slot is filled. On the CPU the same copies are made one after the other, in this order.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/offload.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/arena.h"

namespace hearth::trainer {

// Not thread-safe. May be destroyed once the passes' own stream is done: the end of a backward pass
// has waited for all copies.
class ActivationLane {
 public:
  // Errors: the device's.
  static absl::StatusOr<std::unique_ptr<ActivationLane>> New(const kernels::Exec& exec);
  ~ActivationLane();
  ActivationLane(const ActivationLane&) = delete;
  ActivationLane& operator=(const ActivationLane&) = delete;

  // Those of the arena's plan, which outlives their use.
  void SetLayers(const Arena& arena);

  // A pass begins. `backward`: it goes back through the layers; otherwise nothing is copied. The
  // four calls below are made for each layer, in the order of the pass, around its launches. They
  // can be recorded into a graph, but only whole passes, and allocate nothing.
  void Begin(bool backward);
  // The launches that follow overwrite the layer's slot.
  absl::Status BeforeForward(const kernels::Exec& exec, size_t layer);
  // The launches so far have filled it.
  absl::Status AfterForward(const kernels::Exec& exec, size_t layer);
  // The launches that follow read what the layer keeps.
  absl::Status BeforeBackward(const kernels::Exec& exec, size_t layer) const;
  // The launches so far are the last that read it.
  absl::Status AfterBackward(const kernels::Exec& exec, size_t layer);

 private:
  struct Bytes {
    void* slot = nullptr;
    void* host = nullptr;
    size_t bytes = 0;
  };
  using Layer = std::vector<Bytes>;  // empty: what it keeps stays in its slot
  using Events = std::array<std::unique_ptr<kernels::Event>, spec::kKeptSlots>;

  explicit ActivationLane(const kernels::Exec& exec) : beside_(exec) {}
  static size_t SlotOf(size_t layer) { return layer % spec::kKeptSlots; }
  // Beside, from where exec's stream is now.
  absl::Status Move(const kernels::Exec& exec, size_t layer, bool to_host);

  kernels::Exec beside_;  // with a stream of its own
  std::vector<Layer> layers_;
  Events launched_;
  Events moved_;
  bool backward_ = false;
  std::array<bool, spec::kKeptSlots> leaving_ = {};  // on its way to the host
};

}  // namespace hearth::trainer
