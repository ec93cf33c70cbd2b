// A calibration as a file of configs/calibration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/spec/feasibility/speed/calibration.h"

namespace hearth::spec {

// `gpu`: a name of configs/gpus.yaml. `notes`: lines of comment at the top. ParseCalibration reads
// the same figures, rates of products and attention to 0.1 TFLOP/s.
std::string CalibrationText(const Calibration& calibration,
                            std::string_view gpu,
                            const std::vector<std::string>& notes);

}  // namespace hearth::spec
