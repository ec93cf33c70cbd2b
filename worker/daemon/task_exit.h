// From how a process ended to what the coordinator is told. Pure.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"
#include "worker/daemon/trainer_host.h"

namespace hearth::worker {

google::protobuf::Timestamp ToProtoTime(absl::Time time);

// checkpoint.grace_seconds of a resolved spec; 60 s when unset.
absl::Duration StopGrace(const v1::JobSpec& spec);

// `said` is the trainer's own TrainerExit, which stands unless the process was killed or broke the
// pipe's rules before it could say anything. `step` and `checkpoint_step` are the last ones known
// and fill what it left out.
v1::TaskExit MakeTaskExit(const ExitFacts& facts,
                          const std::optional<v1::TrainerExit>& said,
                          int64_t step,
                          int64_t checkpoint_step,
                          absl::Time now);

// What is to be said of a trainer that is ending and not gone yet; arguments as for MakeTaskExit
// and OnTrainerDying. Nothing when it ends well by its own word.
std::optional<v1::TaskDying> MakeTaskDying(const ExitFacts& facts,
                                           bool known,
                                           absl::Duration dying_for,
                                           const std::optional<v1::TrainerExit>& said,
                                           int64_t step,
                                           absl::Time now);

}  // namespace hearth::worker
