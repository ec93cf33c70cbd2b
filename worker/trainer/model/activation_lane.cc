#include "worker/trainer/model/activation_lane.h"

#include <utility>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::Event;

absl::StatusOr<std::unique_ptr<ActivationLane>> ActivationLane::New(const kernels::Exec& exec) {
  std::unique_ptr<ActivationLane> lane(new ActivationLane(exec));
  lane->beside_.stream = nullptr;
  if (exec.device == kernels::Device::kCuda) {
    HEARTH_ASSIGN_OR_RETURN(lane->beside_.stream, kernels::NewStream(*exec.cuda));
  }
  for (Events* events : {&lane->launched_, &lane->moved_}) {
    for (std::unique_ptr<Event>& event : *events) {
      HEARTH_ASSIGN_OR_RETURN(event, Event::New(exec, Event::Use::kOrder));
    }
  }
  return lane;
}

ActivationLane::~ActivationLane() {
  if (beside_.stream != nullptr) {
    kernels::DeleteStream(beside_.stream);
  }
}

void ActivationLane::SetLayers(const Arena& arena) {
  layers_.clear();
  for (const spec::LayerBuffers& layer : arena.ids().layers) {
    Layer& out = layers_.emplace_back();
    for (const spec::AwayBuffer& away : layer.away) {
      out.push_back({arena.Bytes(away.slot), arena.Bytes(away.host),
                     static_cast<size_t>(arena.BytesOf(away.slot))});
    }
  }
}

void ActivationLane::Begin(bool backward) {
  backward_ = backward;
  leaving_ = {};
}

absl::Status ActivationLane::Move(const kernels::Exec& exec, size_t layer, bool to_host) {
  Event& launched = *launched_[SlotOf(layer)];
  HEARTH_RETURN_IF_ERROR(launched.Record(exec));
  HEARTH_RETURN_IF_ERROR(kernels::StreamWait(beside_, launched));
  for (const Bytes& kept : layers_[layer]) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(beside_, to_host ? kept.host : kept.slot,
                                         to_host ? kept.slot : kept.host, kept.bytes));
  }
  return moved_[SlotOf(layer)]->Record(beside_);
}

absl::Status ActivationLane::BeforeForward(const kernels::Exec& exec, size_t layer) {
  return std::exchange(leaving_[SlotOf(layer)], false)
             ? kernels::StreamWait(exec, *moved_[SlotOf(layer)])
             : absl::OkStatus();
}

absl::Status ActivationLane::AfterForward(const kernels::Exec& exec, size_t layer) {
  if (!backward_ || layers_[layer].empty()) {
    return absl::OkStatus();
  }
  leaving_[SlotOf(layer)] = true;
  return Move(exec, layer, /*to_host=*/true);
}

absl::Status ActivationLane::BeforeBackward(const kernels::Exec& exec, size_t layer) const {
  return layers_[layer].empty() ? absl::OkStatus()
                                : kernels::StreamWait(exec, *moved_[SlotOf(layer)]);
}

absl::Status ActivationLane::AfterBackward(const kernels::Exec& exec, size_t layer) {
  // The slot is free for the layer that had it before.
  return layer < spec::kKeptSlots || layers_[layer - spec::kKeptSlots].empty()
             ? absl::OkStatus()
             : Move(exec, layer - spec::kKeptSlots, /*to_host=*/false);
}

}  // namespace hearth::trainer
