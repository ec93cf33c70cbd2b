// How far plans were from what was measured.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/feasibility/feasibility.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::spec {

struct AccuracyRow {
  MeasuredRun run;
  double tok_s = 0;        // planned; 0 = not known
  double tok_s_error = 0;  // planned over measured - 1
  double watts = 0;        // planned; 0 = not known or not measured
  double watts_error = 0;
};

// One for each of the calibration's runs, in its order. A run whose job this version refuses has no
// plan.
std::vector<AccuracyRow> Accuracy(const GpuRow& gpu, const Calibration& calibration);

// What a plan rests on: the errors of the nearest runs, of the calibration's and of `ended`, jobs
// that ran on this GPU (IsComparable); else "nothing measured on this GPU: ...".
std::string ConfidenceText(const GpuRow& gpu,
                           const Calibration& calibration,
                           absl::Span<const v1::JobPlan> ended,
                           const Feasibility& f);

}  // namespace hearth::spec
