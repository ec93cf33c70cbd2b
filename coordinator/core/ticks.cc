#include "coordinator/core/ticks.h"

#include <algorithm>

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kTickIdle = absl::Seconds(1);
constexpr absl::Duration kTickBusy = absl::Milliseconds(250);

}  // namespace

std::vector<CommandRow> Ticks::Rows() {
  return {
      Row<&Ticks::Pass>("tick"),
  };
}

absl::Duration Ticks::Due() const {
  // From the last one, not from the last command: a steady stream of reports must not put it off.
  // A silent worker is lost the moment its time is over, not up to a pause later.
  return std::min(last_ + (jobs_.active().empty() ? kTickIdle : kTickBusy), silent_.NextCheck());
}

void Ticks::Judge() {
  // In this order: losses are known before the deadlines judge gangs.
  silent_.Check();
  deadlines_.Check();
  stragglers_.Check();
  stuck_.Check();
  views_.Review();
}

void Ticks::Pass(const Tick& tick) {
  last_ = turn_.mono();
  // The plan comes last, as it hands out what all of these have freed.
  if (turn_.mono() >= tick.judge_from) {
    Judge();
  } else {
    silent_.CheckAt(tick.judge_from);
  }
  checkpoints_.Check();
  folders_.AskForListings();
  calls_.Expire();
  tokens_.Expire();
  views_.Expire();
  conditions_.Check();
  placement_.PlanIfDue();
  notifications_.Send();
}

}  // namespace hearth::coordinator
