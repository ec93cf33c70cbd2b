// Turns the way a process ended into the report for the coordinator. Pure.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

google::protobuf::Timestamp ToProtoTime(absl::Time time);

// checkpoint.grace_seconds of a resolved spec; 60 s when unset.
absl::Duration StopGrace(const v1::JobSpec& spec);

// `said` is the trainer's own TrainerExit; it holds unless the process was killed or broke the
// pipe's rules before it could say anything. `step` and `checkpoint_step` are the last known ones
// and fill in what it left out.
v1::TaskExit MakeTaskExit(const ExitFacts& facts,
                          const std::optional<v1::TrainerExit>& said,
                          int64_t step,
                          int64_t checkpoint_step,
                          absl::Time now);

// The report on a trainer that is ending but not gone yet; arguments as for MakeTaskExit and
// OnTrainerDying. Nothing when the trainer itself said that it ends well.
std::optional<v1::TaskDying> MakeTaskDying(const ExitFacts& facts,
                                           bool known,
                                           absl::Duration dying_for,
                                           const std::optional<v1::TrainerExit>& said,
                                           int64_t step,
                                           absl::Time now);

}  // namespace hearth::worker
