#include "worker/trainer/cli/generate/log_probs.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/fields/choices.h"
#include "common/spec/recipe/recipe.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kAuto = "auto";

bool Quantises(const CheckpointMeta& meta) {
  const spec::Recipe* const recipe = spec::FindRecipe(meta.recipe);
  return recipe == nullptr || recipe->quantised();
}

// The pass that `name` says.
absl::StatusOr<LogProbs> FromName(const std::string& name) {
  std::string names(kAuto);
  for (const LogProbs from : {LogProbs::kGeneration, LogProbs::kTraining}) {
    if (LogProbsName(from) == name) {
      return from;
    }
    absl::StrAppend(&names, " or ", std::string(LogProbsName(from)));
  }
  return absl::InvalidArgumentError(absl::StrCat("--log-probs ", name, ": must be ", names));
}

}  // namespace

absl::StatusOr<LogProbsChoice> ChooseLogProbs(const LogProbsOptions& options,
                                              bool shown,
                                              const std::string& folder,
                                              Env& env) {
  const absl::StatusOr<CheckpointMeta> meta = ReadMeta(env, folder);
  LogProbsChoice choice;
  choice.deterministic = meta.ok() && spec::WantsDeterministic(meta->recorded.train());
  if (options.from != kAuto) {
    HEARTH_ASSIGN_OR_RETURN(choice.from, FromName(options.from));
  } else if (shown && choice.deterministic && !Quantises(*meta)) {
    choice.from = LogProbs::kTraining;
  }
  if (choice.from == LogProbs::kGeneration) {
    return choice;
  }
  if (!shown) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-probs ", options.from, ": only -o json shows log-probabilities"));
  }
  if (meta.ok()) {
    choice.shape.micro_batch = meta->micro_batch_size;
    choice.shape.length = meta->recorded.data().sequence_length();
    choice.shape.documents = spec::SeesOwnDocument(meta->recorded.data());
  }
  if (options.micro_batch > 0) {
    choice.shape.micro_batch = options.micro_batch;
  }
  if (options.sequence_length > 0) {
    choice.shape.length = options.sequence_length;
  }
  if (choice.shape.micro_batch < 1 || choice.shape.length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder,
                     " does not say the shape of training's micro-batches: give --micro-batch and "
                     "--sequence-length"));
  }
  return choice;
}

}  // namespace hearth::trainer
