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

absl::Status DividedWeights::Free(const kernels::Exec& exec, int slot) {
  const auto s = static_cast<size_t>(slot);
  free_[s] = released_[s].get();
  return released_[s]->Record(exec);
}

absl::Status DividedWeights::Begin(const kernels::Exec& exec) {
  packed_ = -1;
  std::fill(free_.begin(), free_.end(), begun_.get());
  return begun_->Record(exec);
}

absl::Status DividedWeights::Announce(const kernels::Exec& /*exec*/, int unit) {
  const auto slot = static_cast<size_t>(Unit(unit).arrival);
  HEARTH_RETURN_IF_ERROR(kernels::StreamWait(beside_, *free_[slot]));
  const std::vector<ParameterStore::UnitPart>& parts = engine_.parameters().UnitParts(unit);
  for (const ParameterStore::UnitPart& part : parts) {
    const TensorView own = Slice(part.arrived, comm_.rank() * part.own.numel(), part.own.numel());
    HEARTH_RETURN_IF_ERROR(kernels::Copy(beside_, own.data, part.own.data, own.bytes()));
  }
  HEARTH_RETURN_IF_ERROR(exchanges_ ? Gather(parts) : absl::OkStatus());
  packed_ = Unit(unit).unpacked() ? unit : packed_;
  return arrived_[static_cast<size_t>(unit)]->Record(beside_);
}

absl::Status DividedWeights::Gather(const std::vector<ParameterStore::UnitPart>& parts) {
  HEARTH_RETURN_IF_ERROR(comm_.GroupBegin());
  for (const ParameterStore::UnitPart& part : parts) {
    HEARTH_RETURN_IF_ERROR(comm_.AllGather(beside_, part.arrived));
  }
  return comm_.GroupEnd();
}

absl::Status DividedWeights::Acquire(const kernels::Exec& exec, int unit) {
  HEARTH_RETURN_IF_ERROR(kernels::StreamWait(exec, *arrived_[static_cast<size_t>(unit)]));
  if (packed_ != unit) {
    return absl::OkStatus();
  }
  packed_ = -1;
  HEARTH_RETURN_IF_ERROR(engine_.parameters().Unpack(exec, unit));
  return Free(exec, Unit(unit).arrival);
}

absl::Status DividedWeights::Release(const kernels::Exec& exec, int unit) {
  return Free(exec, Unit(unit).slot);
}

int64_t DividedWeights::BytesPerPass() const {
  if (!exchanges_) {
    return 0;
  }
  const ParameterStore& p = engine_.parameters();
  const auto element = static_cast<double>(kernels::DTypeBytes(p.flat_weights().dtype, 1));
  const spec::Gathered bytes = spec::GatheredBytes(p.units(), element);
  return (bytes.forward + bytes.backward) / comm_.world_size() * (comm_.world_size() - 1);
}

}  // namespace hearth::trainer
