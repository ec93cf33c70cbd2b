#include "common/weights/state_average.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/optimizer/average_state.h"
#include "common/weights/model_files.h"

namespace hearth::weights {

absl::StatusOr<StateAverage> StateAverage::Open(Env& env,
                                                const std::string& dir,
                                                const std::vector<spec::Parameter>& table) {
  StateAverage average;
  HEARTH_ASSIGN_OR_RETURN(average.files_, StateFiles::Open(env, dir));
  for (const spec::Parameter& parameter : table) {
    const std::string name = absl::StrCat(std::string(spec::kAverageState), ".", parameter.name);
    const StateFiles::Pieces& pieces =
        average.parameters_.emplace_back(average.files_.Find(name, TensorDType::kF32));
    if (pieces.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          dir, average.files_.empty()
                   ? " has no state/, where the average of the weights is; a copy has it if it "
                     "was downloaded with --state"
                   : " has no average of the weights: its job kept none (train.ema)"));
    }
    if (const int64_t end = Covered(pieces); end != parameter.logical_elements()) {
      return absl::DataLossError(absl::StrCat(dir, "/", std::string(kStateFolder),
                                              ": no file has tensor \"", name, "\" from element ",
                                              end));
    }
  }
  return average;
}

void StateAverage::Read(size_t k, int64_t first, absl::Span<float> out) const {
  ForEachPiece(parameters_[k], first, out, ReadElements);
}

}  // namespace hearth::weights
