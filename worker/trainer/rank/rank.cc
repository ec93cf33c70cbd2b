#include "worker/trainer/rank/rank.h"

#include "absl/strings/str_cat.h"
#include "common/base/table_rows.h"
#include "common/spec/objective/objective_table.h"
#include "worker/trainer/rank/evaluation/eval_run.h"
#include "worker/trainer/rank/rank_run.h"

namespace hearth::trainer {
namespace {

// What a rank does for each row of the table of tasks.
struct TaskRun {
  spec::ObjectiveKind kind;
  v1::TrainerExit (*run)(const RankOptions& options);
};

constexpr TaskRun kRuns[] = {
    {spec::ObjectiveKind::kPretrain, RunTraining},
    {spec::ObjectiveKind::kSft, RunTraining},
    {spec::ObjectiveKind::kEval, RunEvaluation},
};

const TaskRun* FindRun(spec::ObjectiveKind kind) {
  return FindRow(kRuns, &TaskRun::kind, kind);
}

}  // namespace

bool RunsTask(spec::ObjectiveKind kind) {
  return FindRun(kind) != nullptr;
}

v1::TrainerExit RunRank(const RankOptions& options) {
  const std::string& task = options.link->task().spec().task();
  const spec::ObjectiveRow* const row = spec::FindObjective(task);
  const TaskRun* const found = row == nullptr ? nullptr : FindRun(row->kind);
  if (found != nullptr) {
    return found->run(options);
  }
  v1::TrainerExit exit;
  exit.set_reason(v1::EXIT_REASON_BAD_SPEC);
  exit.set_message(absl::StrCat("task: this trainer does not know \"", task, "\""));
  options.link->SendExit(exit);
  return exit;
}

}  // namespace hearth::trainer
