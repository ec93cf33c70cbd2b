// The optimizer table: which state an optimizer keeps for a parameter. The rest of an optimizer is
// its folder worker/trainer/optim/<name>/.
#pragma once

#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/model/parameter.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// clang-format off
// One row an optimizer: ROW(Type, name, comment, states...). The folder worker/trainer/optim/<name>/
// defines Make<Type>() (worker/trainer/optim/optimizer.h).
#define HEARTH_OPTIMIZERS(ROW)                                                        \
  ROW(AdamW, "adamw", "Adam with decoupled weight decay; both moments in fp32",       \
      StateSpec{"exp_avg"}, StateSpec{"exp_avg_sq"})                                  \
  ROW(Muon, "muon", "orthogonal momentum for hidden matrices, AdamW for all else",    \
      StateSpec{"momentum", DType::kF32, &IsHiddenMatrix, true},                      \
      StateSpec{"exp_avg", DType::kF32, &IsNotHiddenMatrix},                          \
      StateSpec{"exp_avg_sq", DType::kF32, &IsNotHiddenMatrix})
// clang-format on

// State that is kept with parameters. Two of one name and different formats are of different
// parameters.
struct StateSpec {
  std::string_view name;      // "exp_avg"
  DType dtype = DType::kF32;  // kF32 or kBF16; a CPU too holds kBF16 in 16 bits
  // Which parameters have it; null: all.
  bool (*of)(const Parameter& parameter) = nullptr;
  // Kept in this format alone, with masters, whatever optimizer.state and optimizer.master offer:
  // the rules refuse a job that asks for another.
  bool fixed = false;

  bool Has(const Parameter& parameter) const { return of == nullptr || of(parameter); }
};

// Weights of linear layers inside the model: neither embeddings nor the output projection.
bool IsHiddenMatrix(const Parameter& parameter);
bool IsNotHiddenMatrix(const Parameter& parameter);

struct OptimizerRow {
  std::string_view name;
  std::string_view comment;
  std::vector<StateSpec> states = {};

  bool needs_master() const;
};

// Rows live for ever.
absl::Span<const OptimizerRow> Optimizers();
const OptimizerRow* FindOptimizer(std::string_view name);
std::vector<std::string_view> OptimizerNames();

// What the optimizer keeps with the parameter.
std::vector<ParameterState> StatesOf(const OptimizerRow& optimizer, const Parameter& parameter);

// Peak-relative learning rate and decay of a group's parameters.
struct GroupOptions {
  double lr_scale = 1.0;
  double weight_decay = 0.0;

  bool operator==(const GroupOptions&) const = default;
};

// The group's defaults with optimizer.groups put in. Expects a resolved spec.
GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, ParameterGroup group);

}  // namespace hearth::spec
