// Which formats of weights.store can be trained.
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {

void CheckWeights(const v1::JobSpec& job, Checker& check) {
  const WeightStoreRow* const row = FindWeightStore(job.weights().store());
  if (row != nullptr && !row->refusal.empty()) {
    check.Add("weights.store", Text(row->name, ' ', row->refusal));
  }
}

}  // namespace hearth::spec
