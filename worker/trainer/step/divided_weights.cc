#include "worker/trainer/step/divided_weights.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/spec/plan/weight_units.h"

namespace hearth::trainer {

using kernels::TensorView;

absl::StatusOr<std::unique_ptr<DividedWeights>> DividedWeights::New(Engine& engine,
                                                                    Collective& comm,
                                                                    const kernels::Exec& beside,
                                                                    bool exchanges) {
  std::unique_ptr<DividedWeights> made(new DividedWeights(engine, comm, beside, exchanges));
  const spec::WeightUnits& units = engine.parameters().units();
  const auto event = [&engine] {
    return kernels::Event::New(engine.exec(), kernels::Event::Use::kOrder);
  };
  HEARTH_ASSIGN_OR_RETURN(made->begun_, event());
  made->arrived_.resize(units.units.size());
  made->released_.resize(units.slots.size());
  made->free_.resize(units.slots.size(), nullptr);
  for (auto* const events : {&made->arrived_, &made->released_}) {
    for (std::unique_ptr<kernels::Event>& each : *events) {
      HEARTH_ASSIGN_OR_RETURN(each, event());
    }
  }
  return made;
}

size_t DividedWeights::SlotOf(int unit) const {
  return static_cast<size_t>(engine_.parameters().units().units[static_cast<size_t>(unit)].slot);
}

absl::Status DividedWeights::Begin(const kernels::Exec& exec) {
  std::fill(free_.begin(), free_.end(), begun_.get());
  return begun_->Record(exec);
}

absl::Status DividedWeights::Announce(const kernels::Exec& /*exec*/, int unit) {
  HEARTH_RETURN_IF_ERROR(kernels::StreamWait(beside_, *free_[SlotOf(unit)]));
  const std::vector<ParameterStore::UnitPart>& parts = engine_.parameters().UnitParts(unit);
  for (const ParameterStore::UnitPart& part : parts) {
    const TensorView own = Slice(part.whole, comm_.rank() * part.own.numel(), part.own.numel());
    HEARTH_RETURN_IF_ERROR(kernels::Copy(beside_, own.data, part.own.data, own.bytes()));
  }
  HEARTH_RETURN_IF_ERROR(exchanges_ ? Gather(parts) : absl::OkStatus());
  return arrived_[static_cast<size_t>(unit)]->Record(beside_);
}

absl::Status DividedWeights::Gather(const std::vector<ParameterStore::UnitPart>& parts) {
  HEARTH_RETURN_IF_ERROR(comm_.GroupBegin());
  for (const ParameterStore::UnitPart& part : parts) {
    HEARTH_RETURN_IF_ERROR(comm_.AllGather(beside_, part.whole));
  }
  return comm_.GroupEnd();
}

absl::Status DividedWeights::Acquire(const kernels::Exec& exec, int unit) {
  return kernels::StreamWait(exec, *arrived_[static_cast<size_t>(unit)]);
}

absl::Status DividedWeights::Release(const kernels::Exec& exec, int unit) {
  const size_t slot = SlotOf(unit);
  free_[slot] = released_[slot].get();
  return released_[slot]->Record(exec);
}

absl::Status DividedWeights::TakeWhole(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(Begin(exec));
  const auto units = static_cast<int>(arrived_.size());
  for (int unit = 0; unit < units; ++unit) {
    HEARTH_RETURN_IF_ERROR(Announce(exec, unit));
    HEARTH_RETURN_IF_ERROR(Acquire(exec, unit));
    HEARTH_RETURN_IF_ERROR(engine_.TakeWhole(unit));
    HEARTH_RETURN_IF_ERROR(Release(exec, unit));
  }
  return absl::OkStatus();
}

int64_t DividedWeights::BytesPerPass() const {
  if (!exchanges_) {
    return 0;
  }
  const ParameterStore& p = engine_.parameters();
  const spec::GatheredElements gathered = spec::GatheredInPass(p.units());
  const int64_t bytes =
      kernels::DTypeBytes(p.flat_weights().dtype, gathered.forward + gathered.backward);
  return bytes / comm_.world_size() * (comm_.world_size() - 1);
}

}  // namespace hearth::trainer
