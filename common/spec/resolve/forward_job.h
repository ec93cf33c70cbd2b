// A job that only runs a model forward: what evaluation and generation resolve for their engines.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// What the caller knows of it.
struct ForwardJob {
  v1::ModelSpec model;
  v1::DataSpec data;                   // sequence_length at least
  std::string_view recipe = "fp32";    // a row of the recipes
  std::string_view device = "cpu";     // cpu | cuda
  std::string_view task = "pretrain";  // a row of the objectives
};

// Resolved. kInvalidArgument lists every problem.
absl::StatusOr<v1::JobSpec> ResolveForwardJob(const ForwardJob& job);

}  // namespace hearth::spec
