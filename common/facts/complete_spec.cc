#include "common/facts/complete_spec.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/hf/hf_config.h"
#include "common/spec/resolve.h"

namespace hearth::facts {
namespace {

absl::StatusOr<spec::DataFacts> ReadData(const v1::JobSpec& spec, Env& env) {
  spec::DataFacts facts;
  for (const auto* sources : {&spec.data().train(), &spec.data().validation()}) {
    for (const v1::DataSource& source : *sources) {
      HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Dataset> data,
                              dataset::Dataset::Open(source.path(), env));
      facts.vocab = std::max(facts.vocab, data->vocab());
      facts.train_tokens += sources == &spec.data().train() ? data->tokens() : 0;
    }
  }
  return facts;
}

absl::Status Complete(v1::JobSpec& spec, const spec::DataFacts& facts, Env& env) {
  std::optional<v1::ModelSpec> from;
  if (spec.model().has_from()) {
    HEARTH_ASSIGN_OR_RETURN(from, hf::ReadHfConfig(spec.model().from(), env));
  }
  std::vector<spec::FieldViolation> violations;
  spec::ResolveWithFacts(spec, facts, from.has_value() ? &*from : nullptr, violations);
  return spec::ViolationsToStatus(violations);
}

}  // namespace

absl::Status CompleteSpec(v1::JobSpec& spec, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const spec::DataFacts facts, ReadData(spec, env));
  return Complete(spec, facts, env);
}

absl::Status CompleteForPlan(v1::JobSpec& spec, Env& env) {
  return spec.model().has_vocab() || spec.model().has_from() ? Complete(spec, {}, env)
                                                             : CompleteSpec(spec, env);
}

}  // namespace hearth::facts
