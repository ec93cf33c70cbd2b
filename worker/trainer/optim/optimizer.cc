#include "worker/trainer/optim/optimizer.h"

#include <string_view>

#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

struct Maker {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerContext& context);
};

#define HEARTH_MAKER(type, name, ...) {name, &Make##type},
constexpr Maker kMakers[] = {HEARTH_OPTIMIZERS(HEARTH_MAKER)};
#undef HEARTH_MAKER

}  // namespace

BlockRounding RoundingOf(const OptimizerContext& context) {
  BlockRounding rounding;
  rounding.seed = context.seed;
  rounding.quant = context.quant;
  rounding.round = context.numerics.weight;
  return rounding;
}

BlockRounding At(const UpdateArgs& update, BlockRounding rounding) {
  rounding.inputs = update.inputs;
  rounding.skip = update.skip;
  return rounding;
}

std::unique_ptr<Optimizer> MakeOptimizer(const spec::OptimizerRow& row,
                                         const OptimizerContext& context) {
  for (const spec::Parameter& parameter : context.parameters->table()) {
    HEARTH_CHECK(spec::HasStatesOf(row, parameter), "the table has the states of this optimizer");
  }
  for (const Maker& maker : kMakers) {
    if (maker.name == row.name) {
      return maker.make(context);
    }
  }
  HEARTH_CHECK(false, "both tables are made of the same rows");
  return nullptr;
}

}  // namespace hearth::trainer
