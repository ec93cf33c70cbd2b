// The one place where defaults are applied; called by Resolve.
#pragma once

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Merges the preset under the fields that the spec sets. False when the preset is not in the table.
bool ApplyPreset(v1::ModelSpec& model);

// Fills what can be derived from other fields of the model and the fixed defaults; vocab stays as
// it is.
void ApplyModelDefaults(v1::ModelSpec& model, int32_t sequence_length);

// Which layers stay in BF16. Nothing while nobody knows how many there are: a model from a folder.
void ApplyLayerDefaults(v1::JobSpec& job_spec);

// Everything but the model. Fields whose default hangs on an unset one (train.steps) or on the
// workers (global_batch_tokens when micro_batch_size is auto) stay unset.
void ApplyDefaults(v1::JobSpec& job_spec);

}  // namespace hearth::spec
