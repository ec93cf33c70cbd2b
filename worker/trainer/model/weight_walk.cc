#include "worker/trainer/model/weight_walk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {

WeightWalk::WeightWalk(spec::WeightUnits units)
    : units_(std::move(units)),
      visits_{units_.empty() ? std::vector<int>() : units_.Visits(false),
              units_.empty() ? std::vector<int>() : units_.Visits(true)},
      holders_(units_.slots.size(), -1) {}

int& WeightWalk::Holder(int unit) {
  const int slot = units_.units[static_cast<size_t>(unit)].slot;
  return holders_[static_cast<size_t>(slot)];
}

absl::Status WeightWalk::Begin(const kernels::Exec& exec, WeightSource* source, bool backward) {
  if (units_.empty()) {
    return absl::OkStatus();
  }
  if (source == nullptr) {
    return absl::FailedPreconditionError("weights come in units, and nothing brings them");
  }
  source_ = source;
  pass_ = &visits_[backward];
  next_ = 0;
  // Slots share bytes with other buffers of the step: nothing of an earlier pass is left in them.
  std::fill(holders_.begin(), holders_.end(), -1);
  arriving_ = -1;
  return source_->Begin(exec);
}

absl::Status WeightWalk::Announce(const kernels::Exec& exec, size_t visit) {
  if (visit >= pass_->size()) {
    return absl::OkStatus();
  }
  const int unit = (*pass_)[visit];
  if (Holder(unit) == unit) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(source_->Announce(exec, unit));
  Holder(unit) = arriving_ = unit;
  return absl::OkStatus();
}

absl::StatusOr<int> WeightWalk::Enter(const kernels::Exec& exec, int block) {
  if (units_.empty()) {
    return -1;
  }
  const int unit = units_.of_block[static_cast<size_t>(block)];
  if (pass_ != nullptr && next_ > 0 && (*pass_)[next_ - 1] == unit) {
    return -1;
  }
  if (pass_ == nullptr || next_ >= pass_->size() || (*pass_)[next_] != unit) {
    return absl::InternalError(absl::StrCat("weights of block ", block, " are read out of turn"));
  }
  if (next_ > 0) {
    HEARTH_RETURN_IF_ERROR(source_->Release(exec, (*pass_)[next_ - 1]));
  }
  // The first of a pass; every other one was announced by the visit before it, if units go ahead.
  HEARTH_RETURN_IF_ERROR(Announce(exec, next_));
  HEARTH_RETURN_IF_ERROR(source_->Acquire(exec, unit));
  const int arrived = std::exchange(arriving_, -1);
  ++next_;
  HEARTH_RETURN_IF_ERROR(units_.ahead ? Announce(exec, next_) : absl::OkStatus());
  return arrived;
}

absl::Status WeightWalk::End(const kernels::Exec& exec) {
  if (units_.empty()) {
    return absl::OkStatus();
  }
  if (pass_ == nullptr || next_ != pass_->size()) {
    return absl::InternalError("a pass has not read all weights");
  }
  return source_->Release(exec, (*std::exchange(pass_, nullptr))[next_ - 1]);
}

absl::Status VisitUnits(const kernels::Exec& exec,
                        WeightSource& source,
                        const spec::WeightUnits& units,
                        absl::FunctionRef<absl::Status(int unit)> visit) {
  HEARTH_RETURN_IF_ERROR(source.Begin(exec));
  for (int unit = 0; unit < static_cast<int>(units.units.size()); ++unit) {
    HEARTH_RETURN_IF_ERROR(source.Announce(exec, unit));
    HEARTH_RETURN_IF_ERROR(source.Acquire(exec, unit));
    HEARTH_RETURN_IF_ERROR(visit(unit));
    HEARTH_RETURN_IF_ERROR(source.Release(exec, unit));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
