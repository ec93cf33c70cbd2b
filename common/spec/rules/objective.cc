#include "common/spec/data/sample_tables.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckObjective(const v1::JobSpec& job, Checker& check) {
  const ObjectiveRow* objective = FindObjective(job.task());
  if (objective == nullptr || !objective->uses_loss_mask) {
    return;
  }
  const PackingRow* const packing = FindPacking(job.data().packing());
  if (packing != nullptr && packing->cuts_anywhere) {
    check.Add("data.packing",
              Text(packing->name, " cuts documents anywhere, and a sample may then have no ",
                   "token that counts; task: ", objective->name, " needs ", objective->packing));
  }
}

void CheckLossMasks(const v1::JobSpec& job, const DataFacts& facts, Checker& check) {
  const ObjectiveRow* objective = FindObjective(job.task());
  if (objective == nullptr || !objective->uses_loss_mask) {
    return;
  }
  for (const FieldPath& dataset : facts.without_mask) {
    check.Add(dataset.field,
              Text(dataset.path, " has no loss mask, and task: ", objective->name,
                   " trains on the tokens that one names; build it from conversations (jobctl ",
                   "dataset build --chat)"));
  }
}

}  // namespace hearth::spec
