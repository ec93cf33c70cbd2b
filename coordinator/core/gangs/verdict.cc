#include "coordinator/core/gangs/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"

namespace hearth::coordinator {
namespace {

bool Broken(const v1::RankRecord& rank) {
  if (!rank.gone()) {
    return rank.has_dying();
  }
  if (rank.lost()) {
    return true;
  }
  const ExitClass exit_class = ExitRowOf(rank.exit().exit().reason()).exit_class;
  return exit_class != ExitClass::kFinished && exit_class != ExitClass::kStopped;
}

}  // namespace

bool Finished(const v1::RankRecord& rank) {
  return rank.gone() && !rank.lost() && rank.exit().exit().reason() == v1::EXIT_REASON_FINISHED;
}

bool AnyBroken(const v1::JobRecord& record) {
  return std::any_of(record.ranks().begin(), record.ranks().end(), Broken);
}

int RankOf(const v1::JobRecord& record, int64_t epoch, const v1::Worker& worker) {
  if (epoch != record.job().epoch()) {
    return -1;
  }
  // The name alone is not enough: a daemon that was restarted under it has none of the tasks of the
  // one before.
  for (int i = 0; i < record.ranks_size(); ++i) {
    const v1::RankRecord& rank = record.ranks(i);
    if (rank.worker_id() == worker.worker_id() && rank.incarnation() == worker.incarnation()) {
      return i;
    }
  }
  return -1;
}

bool AllGone(const v1::JobRecord& record) {
  return std::all_of(record.ranks().begin(), record.ranks().end(),
                     [](const v1::RankRecord& rank) { return rank.gone(); });
}

bool ReadyToRestart(const v1::JobRecord& record) {
  return record.job().state() == v1::JOB_STATE_RECOVERING && !record.has_stop() && AllGone(record);
}

Verdict JudgeGang(const v1::JobRecord& record) {
  const auto& ranks = record.ranks();
  Verdict verdict;
  verdict.code = reasons::kTrainerStopped;
  verdict.message = "the trainer left on request";
  verdict.actor = "trainer";
  // Rank 0 writes and announces the final checkpoint. Once it has finished, nothing that happens to
  // the others takes that back.
  if (ranks.empty() || Finished(ranks[0])) {
    verdict.exit_class = ExitClass::kFinished;
    verdict.code = reasons::kFinished;
    verdict.message = "all steps are done";
    return verdict;
  }
  // The rank that explains the end best: 4 its own fault for good, 3 its worker is lost, 2 it
  // failed by itself, 1 it says that others were gone. Ranks that we killed explain nothing, and of
  // equals the first counts.
  int best = 0;
  for (int i = 0; i < ranks.size(); ++i) {
    const v1::RankRecord& rank = ranks[i];
    // The exit says more than the first word of dying; both name the same death.
    const v1::TrainerExit& end = rank.has_exit() ? rank.exit().exit() : rank.dying();
    const ExitRow& row = ExitRowOf(end.reason());
    if (!rank.gone() && !rank.has_dying()) {
      continue;
    }
    int weight = 0;
    if (rank.lost()) {
      weight = 3;
    } else if (row.exit_class == ExitClass::kFatal) {
      weight = 4;
    } else if (row.exit_class == ExitClass::kFailure && !rank.killed_by_us()) {
      weight = 2;
    } else if (row.exit_class == ExitClass::kPeers && !rank.killed_by_us()) {
      weight = 1;
    }
    if (weight <= best) {
      continue;
    }
    best = weight;
    verdict.rank = i;
    verdict.lost = rank.lost();
    verdict.device_too_small = !rank.lost() && end.device_too_small();
    verdict.exit_class = rank.lost() ? ExitClass::kStopped : row.exit_class;
    verdict.code = rank.lost() ? reasons::kWorkerLost : row.code;
    verdict.actor = absl::StrCat("worker:", rank.worker_id());
    verdict.message =
        rank.lost()
            ? rank.lost_reason()
            : absl::StrCat("rank ", i, " on ", rank.worker_id(), ": ",
                           end.message().empty()
                               ? absl::StrCat("ended with status ", rank.exit().wait_status())
                               : end.message());
  }
  // Nobody failed, but we ended the gang because it took too long to form: no rank is to blame.
  if (best == 0 && record.stop().reason_code() == reasons::kGangNotFormed) {
    verdict.exit_class = ExitClass::kPeers;
    verdict.rank = -1;
    verdict.code = reasons::kGangNotFormed;
    verdict.message = record.stop().reason();
    verdict.actor = "coordinator";
  }
  return verdict;
}

}  // namespace hearth::coordinator
