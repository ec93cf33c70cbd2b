// The meaning of fields whose value is yes, no or auto.
#pragma once

#include <cstdint>

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// train.deterministic: a GPU runs only kernels that give the same bits in each run. "auto" is no.
bool WantsDeterministic(const v1::TrainSpec& train);

// parallel.shard_optimizer.
enum class Sharding : uint8_t { kAuto, kOn, kOff };
Sharding ShardingOf(const v1::ParallelSpec& parallel);

}  // namespace hearth::spec
