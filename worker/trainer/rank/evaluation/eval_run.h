// task: eval on its only rank: the models of the job one after another, a step each.
#pragma once

#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {

// As RunRank. Evaluates task.models from task.resume_step on. Before each micro-batch it looks at
// what was asked: a stop or a pause ends it there, and the model that was under way is evaluated
// again by the next epoch. Each stage says who is to blame for an error, as in training: files
// that cannot be read are bad data, a batch that the device can never hold is a bad spec, and both
// would be so the next time; memory may be free by then, and a GPU that failed may be back.
v1::TrainerExit RunEvaluation(const RankOptions& options);

}  // namespace hearth::trainer
