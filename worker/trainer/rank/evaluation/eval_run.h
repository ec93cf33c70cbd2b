// task: eval on its only rank: the models of the job one after another, a step each.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {

// As RunRank. Evaluates task.models from task.resume_step on. Before each micro-batch it looks at
// what was asked: a stop or a pause ends it there, and the model that was under way is evaluated
// again by the next epoch.
v1::TrainerExit RunEvaluation(const RankOptions& options);

// Whose fault an error of an evaluation on `device` (cpu | cuda:N) is. A file that is missing or
// damaged will be so the next time; memory may be free by then, and a GPU that failed may be back.
v1::ExitReason BlameForEvaluation(const absl::Status& status, std::string_view device);

}  // namespace hearth::trainer
