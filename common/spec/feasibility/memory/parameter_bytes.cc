#include "common/spec/feasibility/memory/parameter_bytes.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/reduce_formats.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {
namespace {

constexpr double kQ4 = 18.0 / 32;        // Q4_0: 18 bytes for 32 weights
constexpr double kIq3 = 98.0 / 256;      // IQ3_XXS: 98 bytes for 256 weights
constexpr double kQ8 = 34.0 / 32;        // Q8_0: 34 bytes for 32 weights
constexpr double kFp8Scale = 4.0 / 128;  // a scale in FP32 for 1 x 128 gradients
constexpr double kStoreScale = 1.0 / formats::kReduceBlock;  // of gradients.store: fp8

// Names of formats are those of DTypeName, weights.store, gradients.store and optimizer.state, so
// that a row is marked as built when the tables have what it needs.
struct AskedFormat {
  const char* name;
  const char* weights;
  double weight_bytes;
  const char* gradients;
  double gradient_bytes;
  double gradient_scales;
  const char* optimizer;
  const char* state;
};
constexpr AskedFormat kAsked[] = {
    {"FP16 weights and gradients, Adam in FP32", "fp16", 2, "fp16", 2, 0, "adamw", "fp32"},
    // FP8 products want weights along both dimensions (two bytes); moments in BF16 as DeepSeek-V3.
    {"FP8 weights along both dimensions, FP16 gradients, Adam in BF16", "e4m3", 2, "fp16", 2, 0,
     "adamw", "bf16"},
    {"Q4_0 weights, FP16 gradients, Adam in FP32", "q4_0", kQ4, "fp16", 2, 0, "adamw", "fp32"},
    {"Q4_0 weights, FP16 gradients, Muon in FP16", "q4_0", kQ4, "fp16", 2, 0, "muon", "fp16"},
    {"Q4_0 weights, FP16 gradients, Muon in 8 bits", "q4_0", kQ4, "fp16", 2, 0, "muon", "int8"},
    {"Q4_0 weights, FP16 gradients, Muon in 4 bits", "q4_0", kQ4, "fp16", 2, 0, "muon", "int4"},
    {"Q4_0 weights, FP8 gradients, Muon in 4 bits", "q4_0", kQ4, "fp8", 1, kStoreScale, "muon",
     "int4"},
    {"IQ3_XXS weights, FP16 gradients, Muon in 4 bits", "iq3_xxs", kIq3, "fp16", 2, 0, "muon",
     "int4"},
    {"IQ3_XXS weights, FP8 gradients, Muon in 4 bits", "iq3_xxs", kIq3, "e4m3", 1, kFp8Scale,
     "muon", "int4"},
    {"INT8 weights, BF16 gradients, Adam in 8 bits", "int8", kQ8, "bf16", 2, 0, "adamw", "int8"},
    {"Q4_0 weights, BF16 gradients, Muon in 8 bits", "q4_0", kQ4, "bf16", 2, 0, "muon", "int8"},
    {"Q4_0 weights, FP8 gradients, Muon in 8 bits", "q4_0", kQ4, "fp8", 1, kStoreScale, "muon",
     "int8"},
};
constexpr size_t kTiers[] = {0, 5, 8};  // of kAsked

// Any job in this recipe: what is asked of it does not depend on the model.
v1::JobSpec JobIn(std::string_view recipe) {
  v1::JobSpec job;
  job.set_name("formats");
  job.mutable_model()->set_preset("hearth-112m");
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_precision()->set_recipe(std::string(recipe));
  job.mutable_batch()->set_micro_batch_size(1);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  return job;
}

// A large matrix of the layers, as the job would hold it.
Parameter MatrixOf(const v1::JobSpec& job) {
  const absl::StatusOr<std::unique_ptr<PlanInputs>> plan =
      MakePlanInputs(job, 1, /*threads=*/1, /*training=*/true);
  HEARTH_CHECK(plan.ok(), std::string(plan.status().message()).c_str());
  const std::vector<Parameter>& table = (*plan)->table;
  return *std::find_if(table.begin(), table.end(), [](const Parameter& parameter) {
    return IsHiddenMatrix(parameter) && parameter.elements() >= kLeastBlockElements;
  });
}

double Bytes(DType dtype) {
  return DTypeBits(dtype) / 8.0;
}

void AddStates(const std::vector<ParameterState>& states, ParameterBytes& row) {
  for (const ParameterState& state : states) {
    (state.beside_codes() ? row.scales : row.states) += Bytes(state.dtype) / state.per;
  }
}

ParameterBytes TrainedFormat(const v1::JobSpec& job, const StateChoice& choice) {
  const Parameter matrix = MatrixOf(WithChoice(job, choice));
  ParameterBytes row = {.name = absl::StrCat(ChoiceText(choice), ", gradients ", choice.gradients),
                        .weights = Bytes(matrix.storage),
                        .gradients = Bytes(matrix.gradient),
                        .built = true};
  row.weights += matrix.has_master() ? Bytes(matrix.master) : 0;
  AddStates(matrix.states, row);
  return row;
}

std::vector<std::string_view> NamesAt(std::string_view path) {
  return NamesOf(RowOf(*FindPlace(v1::JobSpec(), path).field));
}

bool IsBuilt(const AskedFormat& asked) {
  const std::vector<std::string_view> stores = NamesAt("gradients.store");
  const bool coded = std::find(stores.begin(), stores.end(), asked.gradients) != stores.end();
  const StateChoice choice = {asked.optimizer, asked.state, "none", coded ? "" : asked.gradients};
  const WeightStoreRow* const store = FindWeightStore(asked.weights);
  const absl::Span<const Recipe> recipes = Recipes();
  return std::any_of(recipes.begin(), recipes.end(), [&](const Recipe& recipe) {
    const bool keeps = store != nullptr ? recipe.parameters.storage != DType::kF32
                                        : DTypeName(recipe.parameters.storage) == asked.weights;
    if (!keeps) {
      return false;
    }
    const v1::JobSpec job = JobIn(recipe.name);
    v1::JobSpec changed = WithChoice(job, choice);
    if (coded) {
      changed.mutable_gradients()->set_store(asked.gradients);
    }
    if (store != nullptr) {
      changed.mutable_weights()->set_store(asked.weights);
    }
    return CheckChanged(job, changed).ok();
  });
}

ParameterBytes RowOfAsked(const AskedFormat& asked, const Parameter& matrix) {
  ParameterBytes row = {.name = asked.name,
                        .weights = asked.weight_bytes,
                        .gradients = asked.gradient_bytes,
                        .scales = asked.gradient_scales,
                        .built = IsBuilt(asked)};
  const StateFormatRow* const format = FindStateFormat(asked.state);
  DType plain = DType::kF32;
  ParseDType(asked.state, plain);
  std::vector<ParameterState> states = StatesOf(*FindOptimizer(asked.optimizer), matrix, format);
  for (ParameterState& state : states) {
    state.dtype = format == nullptr ? plain : state.dtype;
  }
  AddStates(states, row);
  return row;
}

std::vector<ParameterBytes> MakeAll() {
  std::vector<ParameterBytes> rows;
  const v1::JobSpec job = JobIn(PlainRecipe().name);
  for (const StateChoice& choice : AllowedChoices(job, /*gradients=*/true)) {
    rows.push_back(TrainedFormat(job, choice));
  }
  const Parameter matrix = MatrixOf(job);
  for (const AskedFormat& asked : kAsked) {
    rows.push_back(RowOfAsked(asked, matrix));
  }
  return rows;
}

}  // namespace

const std::vector<ParameterBytes>& ParameterByteRows() {
  static const auto& rows = *new std::vector<ParameterBytes>(MakeAll());
  return rows;
}

absl::Span<const ParameterBytes> AskedParameterBytes() {
  return absl::MakeConstSpan(ParameterByteRows()).last(std::size(kAsked));
}

std::vector<const ParameterBytes*> ParameterByteTiers() {
  std::vector<const ParameterBytes*> tiers;
  for (const size_t tier : kTiers) {
    tiers.push_back(&AskedParameterBytes()[tier]);
  }
  return tiers;
}

double LargestParameters(double memory_gb, double bytes_per_parameter) {
  return kParameterShare * memory_gb * 1e9 / bytes_per_parameter;
}

}  // namespace hearth::spec
