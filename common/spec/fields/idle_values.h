// Values that change nothing because of other values, where a row's condition cannot say it.
#pragma once

#include <functional>
#include <string>

#include "common/spec/violations/checker.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Adds a violation for each: optimizer groups and formats of state that no parameter of the model
// has, phases of steps that are empty, and the like. `resolved` is `given` with its defaults; what
// it gets wrong elsewhere is not reported here. `is_default` says whether the job would have the
// value at a path without the key, too: such a value is never refused.
void CheckIdleValues(const v1::JobSpec& given,
                     const v1::JobSpec& resolved,
                     const std::function<bool(const std::string& path)>& is_default,
                     Checker& check);

}  // namespace hearth::spec
