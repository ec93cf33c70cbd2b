#include <cstdio>
#include <string>

#include "common/base/version.h"
#include "common/spec/objective.h"
#include "common/spec/optimizer_state.h"
#include "common/spec/recipe.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/commands.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

int ProbeCommand() {
  nlohmann::json out;
  out["version"] = std::string(Version());
  out["commit"] = std::string(GitCommit());
  out["device"] = "cpu";
  out["threads"] = ThreadsOrAll(0);
  out["plan_memory_bytes"] = CpuMemoryBytes(1);
  for (const spec::Recipe& recipe : spec::Recipes()) {
    out["recipes"][std::string(recipe.name)] =
        std::string(spec::ExecutionName(spec::RecipeExecution(recipe.kind, "cpu")));
  }
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    out["optimizers"].push_back(std::string(row.name));
  }
  for (const spec::ObjectiveRow& row : spec::Objectives()) {
    out["objectives"].push_back(std::string(row.name));
  }
  for (const ExitCode& row : kExitCodes) {
    out["exit_codes"][std::string(row.name)] = row.code;
  }
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

}  // namespace hearth::trainer
