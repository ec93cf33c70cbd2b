#include "worker/trainer/step/job_facts.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/hf/hf_config.h"
#include "common/spec/resolve.h"

namespace hearth::trainer {

absl::Status CompleteSpec(v1::JobSpec& spec, Env& env) {
  spec::DataFacts facts;
  for (const auto* sources : {&spec.data().train(), &spec.data().validation()}) {
    for (const v1::DataSource& source : *sources) {
      HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Dataset> data,
                              dataset::Dataset::Open(source.path(), env));
      facts.vocab = std::max(facts.vocab, data->vocab());
      facts.train_tokens += sources == &spec.data().train() ? data->tokens() : 0;
    }
  }
  std::optional<v1::ModelSpec> from;
  if (spec.model().has_from()) {
    HEARTH_ASSIGN_OR_RETURN(from, hf::ReadHfConfig(spec.model().from(), env));
  }
  std::vector<spec::FieldViolation> violations;
  spec::ResolveWithFacts(spec, facts, from.has_value() ? &*from : nullptr, violations);
  return spec::ViolationsToStatus(violations);
}

absl::StatusOr<std::unique_ptr<Loader>> OpenLoader(
    const v1::JobSpec& spec,
    const google::protobuf::RepeatedPtrField<v1::DataSource>& sources,
    bool shuffle,
    Env& env) {
  LoaderOptions options;
  for (const v1::DataSource& source : sources) {
    options.sources.push_back({source.path(), source.weight()});
  }
  options.sequence_length = spec.data().sequence_length();
  options.vocab = spec.model().vocab();
  options.seed = static_cast<uint64_t>(spec.train().seed());
  options.shuffle = shuffle;
  return Loader::Open(options, env);
}

std::string TokenizerFolder(const Loader& loader) {
  for (int i = 0; i < loader.sources(); ++i) {
    const dataset::Dataset& data = loader.source(i);
    if (data.kind() == dataset::Kind::kFolder && data.info().tokenizer.kind != "none") {
      return data.path();
    }
  }
  return "";
}

}  // namespace hearth::trainer
