#include "coordinator/core/gangs/gang.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/spec/fields/rows.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kKillAgain = absl::Seconds(10);
// Trainers give up by themselves, and then say more than the coordinator knows.
constexpr absl::Duration kAfterTrainers = absl::Seconds(15);
constexpr char kMeeting[] = "rendezvous";
constexpr char kLoading[] = "loading";

}  // namespace

absl::Duration Grace(const v1::Job& job) {
  return absl::Seconds(
      spec::IntOrDefault(job.spec().checkpoint(), v1::CheckpointSpec::kGraceSecondsFieldNumber));
}

void Gang::Progress(int64_t step, absl::Duration made) {
  if (step <= step_) {
    return;
  }
  // The first of a gang comes after loading. Reports of two ranks may cross, so one step may
  // seem to take no time: what was seen before fades out.
  if (progressed_) {
    const absl::Duration took = std::max(made - last_progress_, absl::ZeroDuration());
    const absl::Duration faded =
        step_time_ == absl::InfiniteDuration() ? absl::ZeroDuration() : step_time_ / 2;
    step_time_ = std::max(took / (step - step_), faded);
  }
  progressed_ = true;
  step_ = step;
  last_progress_ = std::max(last_progress_, made);
}

void Gang::EndBy(absl::Duration deadline) {
  stop_deadline_ = std::min(stop_deadline_, deadline);
}

void Gang::KillSent(absl::Duration now) {
  kill_time_ = std::min(kill_time_, now);
  kill_again_ = now + kKillAgain;
}

void Gang::HeardPhase(int ranks, int rank, const std::string& phase, absl::Duration now) {
  if (phases_.empty()) {
    // Ranks that say nothing at all are measured from the start of the gang.
    phases_.assign(static_cast<size_t>(ranks), {"", started_});
  }
  Phase& known = phases_[static_cast<size_t>(rank)];
  if (known.name == phase) {
    return;
  }
  known.name = phase;
  known.since = now;
  // Any phase behind the rendezvous proves that the rank was there: heartbeats may skip a short
  // one.
  if (!phase.empty() && phase != kLoading) {
    known.met = std::min(known.met, now);
  }
}

std::string Gang::WhyNotFormed(const v1::JobRecord& record,
                               const CoreOptions& options,
                               absl::Duration now) const {
  // The time for meeting runs from the last rank's arrival: up to then the others wait for it
  // rightly, and only loading_timeout bounds it.
  absl::Duration all_met = -absl::InfiniteDuration();
  for (const Phase& phase : phases_) {
    all_met = std::max(all_met, phase.met);
  }
  for (int i = 0; i < record.ranks_size(); ++i) {
    const Phase unheard = {"", started_};
    const Phase& phase = phases_.empty() ? unheard : phases_[static_cast<size_t>(i)];
    const absl::Duration age = now - phase.since;
    const std::string who = absl::StrCat("rank ", i, " on ", record.ranks(i).worker_id());
    const absl::Duration meets = now - std::max(phase.since, all_met);
    if (phase.name == kMeeting && meets >= options.rendezvous_timeout + kAfterTrainers) {
      return absl::StrCat("the gang did not form within ",
                          absl::FormatDuration(options.rendezvous_timeout),
                          " of all ranks coming to the rendezvous: ", who, " is still there");
    }
    if (phase.name == kLoading && age >= options.loading_timeout) {
      return absl::StrCat("the gang did not form: ", who, " has been loading for ",
                          absl::FormatDuration(options.loading_timeout));
    }
    if (phase.name.empty() && age >= options.loading_timeout) {
      return absl::StrCat("the gang did not form: ", who, " was started ",
                          absl::FormatDuration(options.loading_timeout),
                          " ago and has not said what it does");
    }
  }
  return "";
}

double Gang::EnergySince(int rank, double counter) {
  if (counter <= 0.0) {
    return 0.0;
  }
  const auto [seen, first] = energy_seen_.try_emplace(rank, counter);
  // A counter that fell began again with its driver or machine. What it missed is unknown, and a
  // negative sum would take energy away.
  const double joules = first ? 0.0 : std::max(0.0, counter - seen->second);
  seen->second = counter;
  return joules;
}

void Gangs::Start(const std::string& job_id, int64_t step, absl::Duration now) {
  gangs_.insert_or_assign(job_id, Gang(step, now));
}

}  // namespace hearth::coordinator
