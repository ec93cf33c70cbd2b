// Parts of the report of a step, and what goes with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/checkpoint/background_writer.h"
#include "worker/trainer/guard/ladder.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Bytes of memory in use by this process; 0 when /proc does not say.
int64_t ResidentBytes();

void SetTime(google::protobuf::Timestamp& out, absl::Time time);

v1::CheckpointAnnouncement MakeAnnouncement(const CommittedCheckpoint& committed);

// What the guard decided since the last report, which is then empty, and its counts.
void AddGuard(const v1::GuardCounts& counts,
              std::vector<Decision>& decisions,
              v1::StepReport& report);

// What QuantState::Counted says: every site that was measured, and for each role those with the
// most saturation, the most underflow and the largest magnitude. The device is there.
void AddTensorStats(const Engine& engine, v1::StepReport& report);

}  // namespace hearth::trainer
