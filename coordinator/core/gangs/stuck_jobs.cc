#include "coordinator/core/gangs/stuck_jobs.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {

void StuckJobs::Check() {
  for (const std::string& id : jobs_.active()) {
    const JobState* found = jobs_.Find(id);
    // While the coordinator takes itself to be cut off, it hears of no steps.
    if (found->state() != v1::JOB_STATE_RUNNING || !found->job().isolation().empty()) {
      continue;
    }
    const Gang& gang = gangs_.of(id);
    const absl::Duration without = turn_.mono() - gang.last_progress();
    const bool named = found->job().has_stuck_since();
    // After a restart of the coordinator the time without progress begins again, so only a step
    // that was really made ends it.
    if (named && gang.progressed() && without < options_.stuck) {
      JobState& job = *jobs_.Edit(id);
      job.set_stuck_since(std::nullopt);
      states_.Note(job, "update", "coordinator", "makes steps again");
    } else if (!named && without >= options_.stuck) {
      JobState& job = *jobs_.Edit(id);
      job.set_stuck_since(turn_.wall() - without);
      states_.Note(job, "stuck", "coordinator",
                   absl::StrCat("no step for ",
                                absl::FormatDuration(absl::Floor(without, absl::Seconds(1)))));
    }
  }
}

}  // namespace hearth::coordinator
