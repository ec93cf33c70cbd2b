// Completing a resolved spec with what lies on this machine: dataset vocabularies and the folder of
// model.from.
#pragma once

#include "absl/status/status.h"
#include "common/io/env.h"
#include "hearth/v1/job.pb.h"

namespace hearth::facts {

enum class Tokenizers {
  kCompare,    // those of datasets and model.from must agree, unless data.allow_other_tokenizer
  kAsTheyAre,  // a resume: the job has begun with them
};

// Fills model.vocab and the shape of model.from, and checks the datasets. kInvalidArgument lists
// all violations, or the task trains nothing; errors of opening the datasets and the model folder
// as they are.
absl::Status CompleteSpec(v1::JobSpec& spec,
                          Env& env,
                          Tokenizers tokenizers = Tokenizers::kCompare);

// The same as far as a memory plan needs it: datasets are opened only if nothing else gives the
// vocabulary.
absl::Status CompleteForPlan(v1::JobSpec& spec, Env& env);

// What CompleteSpec would say, as far as the paths can be read on this machine; `spec` stays as it
// is. If only some can, their tokenizers are compared and nothing else.
absl::Status CheckWhatIsHere(const v1::JobSpec& spec, Env& env);

// Compares only the tokenizers of the paths that can be read on this machine. `spec` need not be
// resolved.
absl::Status CompareTokenizers(const v1::JobSpec& spec, Env& env);

}  // namespace hearth::facts
