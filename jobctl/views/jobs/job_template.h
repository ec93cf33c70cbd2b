// A job file for people to edit: every key with what it means.
#pragma once

#include <string>

#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {

// YAML of `spec` with a comment above each key. Keys that `spec` does not set are there too,
// commented out with '#' and with their default, so that removing the '#' sets them. Elements of
// lists and entries of maps are not listed.
std::string JobTemplate(const v1::JobSpec& spec);

}  // namespace hearth::jobctl
