// task: eval on its only rank: the models of the job one after another, a step each.
#pragma once

#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {

// As RunRank. Evaluates task.models from task.resume_step on. Before each micro-batch it looks at
// what was asked: a stop or a pause ends it there, and the model that was under way is evaluated
// again by the next epoch.
v1::TrainerExit RunEvaluation(const RankOptions& options);

}  // namespace hearth::trainer
