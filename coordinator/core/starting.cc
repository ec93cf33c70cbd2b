// The time a gang may take up to its first step. What it computes then (a trial, the first step) is
// not bounded here: nothing tells a long computation from one that hangs, see HearthJobStuck.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

// Trainers give up by themselves, and then say more than the coordinator knows.
constexpr absl::Duration kAfterTrainers = absl::Seconds(15);
constexpr char kMeeting[] = "rendezvous";
constexpr char kLoading[] = "loading";

}  // namespace

void Core::Impl::HeardPhase(JobState& job, int rank, const std::string& phase) {
  if (job.phases.empty()) {
    job.phases.assign(static_cast<size_t>(job.record.ranks_size()), {"", job.gang_start});
  }
  RankPhase& known = job.phases[static_cast<size_t>(rank)];
  if (known.name == phase) {
    return;
  }
  known.name = phase;
  known.since = Mono();
  if (!phase.empty() && phase != kLoading) {
    known.met = std::min(known.met, Mono());
  }
}

std::string Core::Impl::WhyNotFormed(const JobState& job) const {
  absl::Duration all_met = -absl::InfiniteDuration();
  for (const RankPhase& phase : job.phases) {
    all_met = std::max(all_met, phase.met);
  }
  for (int i = 0; i < job.record.ranks_size(); ++i) {
    const v1::RankRecord& rank = job.record.ranks(i);
    const RankPhase unheard = {"", job.gang_start};
    const RankPhase& phase = job.phases.empty() ? unheard : job.phases[static_cast<size_t>(i)];
    const absl::Duration age = Mono() - phase.since;
    const std::string who = absl::StrCat("rank ", i, " on ", rank.worker_id());
    const absl::Duration meets = Mono() - std::max(phase.since, all_met);
    if (phase.name == kMeeting && meets >= options_.rendezvous_timeout + kAfterTrainers) {
      return absl::StrCat("the gang did not form within ",
                          absl::FormatDuration(options_.rendezvous_timeout),
                          " of all ranks coming to the rendezvous: ", who, " is still there");
    }
    if (phase.name == kLoading && age >= options_.loading_timeout) {
      return absl::StrCat("the gang did not form: ", who, " has been loading for ",
                          absl::FormatDuration(options_.loading_timeout));
    }
    if (phase.name.empty() && age >= options_.loading_timeout) {
      return absl::StrCat("the gang did not form: ", who, " was started ",
                          absl::FormatDuration(options_.loading_timeout),
                          " ago and has not said what it does");
    }
  }
  return "";
}

void Core::Impl::CheckStart(JobState& job) {
  if (job.state() != v1::JOB_STATE_STARTING || job.record.has_stop()) {
    return;
  }
  // Of ranks that are out of reach only old phases are known; whether they are lost is decided
  // elsewhere.
  for (const v1::RankRecord& rank : job.record.ranks()) {
    const WorkerState& worker = *FindWorker(rank.worker_id());
    if (rank.gone() || worker.connection == 0 || Silent(worker)) {
      return;
    }
  }
  const std::string why = WhyNotFormed(job);
  if (why.empty()) {
    return;
  }
  Transition(job, v1::JOB_STATE_RECOVERING, "coordinator", kGangNotFormed, why);
  job.record.mutable_stop()->set_reason_code(kGangNotFormed);
  job.record.mutable_stop()->set_reason(why);
  Kill(job, why);
}

}  // namespace hearth::coordinator
