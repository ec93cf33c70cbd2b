#include "common/spec/schedule/schedule.h"

#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckSchedule(const v1::JobSpec& job, Checker& check) {
  const v1::ScheduleSpec& s = job.schedule();
  const int64_t steps = job.train().steps();
  if (steps < 1 || s.warmup_steps() < 0 || s.decay_steps() < 0) {
    return;
  }
  if (s.warmup_steps() > steps) {
    check.Add("schedule.warmup_steps", Text(s.warmup_steps(), " is more than train.steps ", steps));
  } else if (RowOf(s).decay != DecayPlace::kNone && s.decay_steps() > steps - s.warmup_steps()) {
    check.Add("schedule.decay_steps",
              Text("warmup_steps ", s.warmup_steps(), " and decay_steps ", s.decay_steps(),
                   " are together more than train.steps ", steps));
  }
}

}  // namespace hearth::spec
