// What an optimizer's row cannot do with the formats that a job asks for.
#include "common/spec/model/dtype_alias.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckOptimizer(const v1::JobSpec& job, Checker& check) {
  const v1::OptimizerSpec& optimizer = job.optimizer();
  const OptimizerRow* row = FindOptimizer(optimizer.name());
  if (row == nullptr) {
    return;
  }
  const StateFormatRow* const format = FindStateFormat(optimizer.state());
  for (const StateSpec& state : row->states) {
    if (!state.narrow && optimizer.state() != StateFormatRows()[0].name) {
      check.Add("optimizer.state",
                Text(row->name, " keeps ", state.name, " in ", DTypeName(state.dtype),
                     " only, not in ", optimizer.state()));
      break;
    }
    if (format != nullptr && !format->Keeps(state.kind)) {
      const StateRefusal& refusal = format->RefusalOf(state.kind);
      check.Add("optimizer.state", Text(row->name, " keeps no ", state.name, " in ", format->name,
                                        ": ", refusal.why, " (", refusal.evidence, " shows it)"));
      break;
    }
  }
  if (row->needs_master() && optimizer.master() == "none") {
    check.Add("optimizer.master", Text(row->name, " needs fp32 masters"));
  }
}

}  // namespace hearth::spec
