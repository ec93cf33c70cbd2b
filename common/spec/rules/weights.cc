// What weights in blocks (weights.store) go with.
#include "common/spec/plan/offload.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {

void CheckWeights(const v1::JobSpec& job, Checker& check) {
  const WeightStoreRow* const row = FindWeightStore(job.weights().store());
  if (row == nullptr) {
    return;
  }
  if (!row->refusal.empty()) {
    check.Add("weights.store", Text(row->name, ' ', row->refusal));
    return;
  }
  if (!row->in_blocks()) {
    return;
  }
  const std::string& shard = job.parallel().shard();
  const std::string_view whole = RowOf(ShardLevel::kOff).name;
  if (job.resources().workers() > 1 && shard != whole && shard != "auto") {
    check.Add("parallel.shard", Text("weights.store ", row->name,
                                     " keeps all blocks and their "
                                     "state on each rank in this version: only ",
                                     whole, " or auto"));
  }
  for (const OffloadRow& away : OffloadRows()) {
    if ((job.offload().*away.get)()) {
      check.Add(Text("offload.", away.name),
                Text("does not go with weights.store ", row->name,
                     " in this version; a narrower optimizer.state or recompute: block saves "
                     "memory too"));
    }
  }
}

}  // namespace hearth::spec
