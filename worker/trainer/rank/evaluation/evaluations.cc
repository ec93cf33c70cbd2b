#include "worker/trainer/rank/evaluation/evaluations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"

namespace hearth::trainer {

absl::StatusOr<Evaluations> Evaluations::Open(const v1::JobSpec& spec,
                                              const std::string& tokenizer_from,
                                              Env& env) {
  Evaluations evaluations;
  evaluations.last_step_ = spec.train().steps();
  if (spec.train().evaluations().empty()) {
    return evaluations;
  }
  if (tokenizer_from.empty()) {
    return absl::InvalidArgumentError(
        "train.evaluations: no dataset of data.train records a tokenizer, which their items need");
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(tokenizer_from, env));
  for (int i = 0; i < spec.train().evaluations_size(); ++i) {
    const v1::EvaluationSpec& wanted = spec.train().evaluations(i);
    EvaluationOptions options;
    options.task = wanted.task();
    options.name = wanted.name();
    options.items.path = wanted.items();
    options.items.limit = wanted.limit();
    options.context_length = spec.data().sequence_length();
    absl::StatusOr<std::unique_ptr<Evaluation>> opened = Evaluation::Open(options, *tokenizer, env);
    if (!opened.ok()) {
      return Annotate(opened.status(), absl::StrCat("train.evaluations[", i, "]"));
    }
    evaluations.asked_.push_back({*std::move(opened), wanted.every_steps()});
  }
  return evaluations;
}

bool Evaluations::Due(int64_t step) const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [this, step](const Asked& asked) { return IsDue(asked, step); });
}

absl::Status Evaluations::Ask(Trainer& trainer,
                              int64_t step,
                              Clock& clock,
                              v1::StepReport& report) const {
  for (const Asked& asked : asked_) {
    if (!IsDue(asked, step)) {
      continue;
    }
    const absl::Duration start = clock.Monotonic();
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Score> scores,
                            trainer.ScoreAll(asked.evaluation->requests()));
    v1::EvaluationResult& result = *report.add_evaluations();
    result = asked.evaluation->Judge(scores);
    result.set_step(step);
    result.set_seconds(absl::ToDoubleSeconds(clock.Monotonic() - start));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
