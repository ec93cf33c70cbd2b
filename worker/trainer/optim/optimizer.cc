#include "worker/trainer/optim/optimizer.h"

#include "worker/trainer/optim/adamw.h"

namespace hearth::trainer {
namespace {

constexpr OptimizerDef kOptimizers[] = {{spec::OptimizerKind::kAdamW, &MakeAdamW}};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(spec::OptimizerKind kind,
                                                         const OptimizerContext& context) {
  for (const OptimizerDef& row : kOptimizers) {
    if (row.kind == kind) {
      return row.make(context);
    }
  }
  return absl::UnimplementedError("this engine has no implementation of the optimizer");
}

}  // namespace hearth::trainer
