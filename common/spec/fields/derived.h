// Defaults that follow from other fields; constant ones stand in the fields' rows.
#pragma once

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Fills in what is not set and can be computed. Called after FillRowDefaults.
void FillDerivedDefaults(v1::JobSpec& job_spec);

}  // namespace hearth::spec
