#include "common/spec/fields/choices.h"

namespace hearth::spec {

bool WantsDeterministic(const v1::TrainSpec& train) {
  return train.deterministic() == "true";
}

Sharding ShardingOf(const v1::ParallelSpec& parallel) {
  return parallel.shard_optimizer() == "on"    ? Sharding::kOn
         : parallel.shard_optimizer() == "off" ? Sharding::kOff
                                               : Sharding::kAuto;
}

}  // namespace hearth::spec
