#include "worker/trainer/rank/open_loader.h"

#include <utility>

#include "common/dataset/dataset.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/objective/objective_table.h"

namespace hearth::trainer {

bool UsesLossMask(const v1::JobSpec& spec) {
  const spec::ObjectiveRow* objective = spec::FindObjective(spec.task());
  return objective != nullptr && objective->uses_loss_mask;
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
  options.packing = spec::PackingOf(spec.data());
  options.documents = spec::SeesOwnDocument(spec.data());
  options.loss_tokens = UsesLossMask(spec) ? LossTokens::kMasked : LossTokens::kAll;
  return Loader::Open(options, env);
}

std::string TokenizerFolder(const Loader& loader) {
  for (int i = 0; i < loader.sources(); ++i) {
    const dataset::Dataset& data = loader.source(i);
    if (data.info().tokenizer.known()) {
      return data.path();
    }
  }
  return "";
}

}  // namespace hearth::trainer
