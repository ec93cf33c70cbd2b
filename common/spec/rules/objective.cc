#include <set>
#include <string>

#include "common/spec/data/sample_tables.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

namespace {

// "data.train[1].path" is of the list "data.train".
std::string ListOf(const std::string& field) {
  return field.substr(0, field.find('['));
}

}  // namespace

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
  // Text may be mixed into conversations: all of its tokens count. A list without any conversation
  // is a mistake.
  std::set<std::string> lists;
  for (const PathMask& dataset : facts.masks) {
    if (dataset.has_mask) {
      lists.insert(ListOf(dataset.field));
    }
  }
  for (const PathMask& dataset : facts.masks) {
    if (lists.count(ListOf(dataset.field)) != 0) {
      continue;
    }
    check.Add(dataset.field,
              Text(dataset.path, " has no loss mask, and task: ", objective->name,
                   " trains on the tokens that one names; build it from conversations (jobctl ",
                   "dataset build --chat)"));
  }
}

}  // namespace hearth::spec
