// The mean of several model folders' weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"
#include "common/weights/export.h"

namespace hearth::weights {

// Writes a Hugging Face folder to options.out, as kHfExport does, whose weights are the means of
// those of `dirs`, added in fp64 in this order and rounded once, to options.dtype. Configuration
// and tokenizer are those of the first. All are verified first, as in ExportModel.
// kInvalidArgument: no folder; models of other shapes, a tensor of which is named; a format with
// blocks. Otherwise the errors of ExportModel.
absl::StatusOr<Exported> AverageModels(Env& env,
                                       const FileVerifier& verifier,
                                       const std::vector<std::string>& dirs,
                                       const ExportOptions& options);

}  // namespace hearth::weights
