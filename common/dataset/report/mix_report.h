// What a run draws from a mixture of datasets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::dataset {

struct MixSource {
  std::string path;
  double weight = 1;  // finite, > 0
};

// Passes over a source up to which repeated tokens are worth nearly as much as others
// (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models": up to 4 epochs).
inline constexpr double kMaxEpochs = 4;

struct MixReport {
  struct Row {
    MixSource source;
    int64_t tokens = 0;  // in it
    double share = 0;    // of the samples
    int64_t drawn = 0;   // tokens
    double epochs = 0;   // passes over its windows
  };
  int64_t sequence_length = 0;
  int64_t samples = 0;
  std::vector<Row> rows;
  std::vector<std::string> warnings;  // sources that are passed over more than kMaxEpochs times
};

// Samples have `sequence_length` tokens, > 0. `tokens`: how many are drawn, cut to whole samples;
// 0: as many as the sources have. The counts are those of a job's loader, exactly.
// kInvalidArgument: no source, a source shorter than one sample; errors of Dataset::Open.
absl::StatusOr<MixReport> MakeMixReport(const std::vector<MixSource>& sources,
                                        int64_t sequence_length,
                                        int64_t tokens,
                                        Env& env = Env::Real());

std::string ToJson(const MixReport& report);

}  // namespace hearth::dataset
