#include "coordinator/core/liveness/isolation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {

bool Isolation::Review() {
  switch (liveness_.ReviewIsolation(workers_.all(), turn_.mono())) {
    case Liveness::Change::kRanOut:
      NoteEnd("coordinator", absl::StrCat("no worker was heard for ",
                                          absl::FormatDuration(options_.isolation_grace),
                                          ": silent workers count as lost from now on"));
      return false;
    case Liveness::Change::kContactIsBack:
      NoteEnd("coordinator", "contact with the workers is back");
      return true;
    case Liveness::Change::kNone:
      break;
  }
  if (liveness_.isolated()) {
    Note();
  }
  return liveness_.isolated();
}

void Isolation::Begin(absl::Duration silent_since) {
  liveness_.BeginIsolation(silent_since, turn_.mono());
  Note();
}

void Isolation::EndByUser() {
  liveness_.EndIsolation(turn_.mono());
  NoteEnd(turn_.user(), "isolation ended by the user");
}

void Isolation::Note() {
  for (const std::string& id : jobs_.active()) {
    JobState& job = *jobs_.Edit(id);
    const auto& ranks = job.record().ranks();
    const auto silent =
        std::count_if(ranks.begin(), ranks.end(), [this](const v1::RankRecord& rank) {
          return !rank.gone() && !liveness_.Answers(workers_.at(rank.worker_id()), turn_.mono());
        });
    if (silent == 0 || !job.job().isolation().empty()) {
      continue;
    }
    const std::string text = absl::StrCat(
        silent, " of its ", ranks.size(),
        " workers fell silent together with others, and no worker ",
        "answers, which would show that the network works: the coordinator assumes that it is cut ",
        "off and replaces none for ", absl::FormatDuration(options_.isolation_grace),
        ", or until one answers. If the workers are gone, `jobctl declare-lost` ends that");
    job.set_isolation(text);
    states_.Note(job, "warning", "coordinator", text);
  }
}

void Isolation::NoteEnd(const std::string& actor, const std::string& why) {
  // Jobs with lost ranks were left out of the plans (ClusterViews::View); now they may start.
  plan_.Ask();
  for (const std::string& id : jobs_.active()) {
    JobState& job = *jobs_.Edit(id);
    if (!job.job().isolation().empty()) {
      job.set_isolation("");
      states_.Note(job, "update", actor, why);
    }
  }
}

}  // namespace hearth::coordinator
