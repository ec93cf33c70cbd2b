#include "common/spec/fields/tables.h"

#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/formats/reduce_formats.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/spec/model/presets.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/recipe/head_format.h"
#include "common/spec/recipe/linear_kinds.h"
#include "common/spec/recipe/operand_roles.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/schedule/schedule.h"
#include "common/spec/violations/text.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {
namespace {

struct Table {
  std::string_view name;
  std::vector<std::string_view> (*names)();
};

template <const std::vector<std::string_view>& (*Names)()>
std::vector<std::string_view> Copy() {
  return Names();
}

std::vector<std::string_view> ReduceFormatNames() {
  return ColumnOf(formats::kReduceFormats, &formats::ReduceFormatRow::name);
}

constexpr Table kTables[] = {
    {"activation", Copy<ActivationNames>},
    {"attention_bias", Copy<AttentionBiasNames>},
    {"decay_shape", Copy<DecayShapeNames>},
    {"evaluation", EvaluationNames},
    {"fallback", FallbackNames},
    {"head_format", HeadFormatNames},
    {"hf_class", HfClassNames},
    {"linear_kind", LinearKindNames},
    {"norm", Copy<NormNames>},
    {"objective", ObjectiveNames},
    {"operand", OperandRoleNames},
    {"optimizer", OptimizerNames},
    {"parameter_group", Copy<ParameterGroupNames>},
    {"position", Copy<PositionNames>},
    {"preset", PresetNames},
    {"product", ProductNames},
    {"recipe", RecipeNames},
    {"recompute", RecomputeNames},
    {"reduce_format", ReduceFormatNames},
    {"rope_scaling", Copy<RopeScalingNames>},
    {"schedule", ScheduleNames},
    {"shard_choice", ShardChoices},
    {"state_format", StateFormatNames},
    {"weight_store", WeightStoreNames},
};

}  // namespace

std::vector<std::string_view> TableNames(std::string_view table) {
  for (const Table& row : kTables) {
    if (row.name == table) {
      return row.names();
    }
  }
  HEARTH_CHECK(false, Text("no table of names is called ", table).c_str());
  return {};
}

}  // namespace hearth::spec
