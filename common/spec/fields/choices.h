// The meaning of fields whose value is yes, no or auto.
#pragma once

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// train.deterministic: a GPU runs only kernels that give the same bits in each run. "auto" is no.
bool WantsDeterministic(const v1::TrainSpec& train);

}  // namespace hearth::spec
