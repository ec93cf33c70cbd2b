#include "common/weights/state_average.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/optimizer/average_state.h"
#include "common/weights/model_files.h"

namespace hearth::weights {
namespace {

// First element of a tensor that is a piece of a whole one; 0 of one that is whole.
int64_t FirstElement(const SafetensorsFile& file, const TensorView& tensor) {
  const auto text = file.metadata().find(absl::StrCat("first.", tensor.name));
  int64_t first = 0;
  return text != file.metadata().end() && absl::SimpleAtoi(text->second, &first) ? first : 0;
}

}  // namespace

absl::StatusOr<StateAverage> StateAverage::Open(Env& env,
                                                const std::string& dir,
                                                const std::vector<spec::Parameter>& table) {
  const std::string folder = absl::StrCat(dir, "/", std::string(kStateFolder));
  StateAverage average;
  if (env.IsDirectory(folder)) {
    HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> names, env.ListDir(folder));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (name.ends_with(kStateFileEnd)) {
        HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                                SafetensorsFile::Open(env, absl::StrCat(folder, "/", name)));
        average.files_.push_back(std::move(file));
      }
    }
  }
  for (const spec::Parameter& parameter : table) {
    Pieces& pieces = average.parameters_.emplace_back();
    const std::string name = absl::StrCat(std::string(spec::kAverageState), ".", parameter.name);
    for (const auto& file : average.files_) {
      const TensorView* const tensor = file->Find(name);
      if (tensor != nullptr && tensor->dtype == TensorDType::kF32) {
        pieces[FirstElement(*file, *tensor)] = *tensor;
      }
    }
    // The ranks' pieces, in order, have to cover the parameter without a gap.
    int64_t end = 0;
    for (const auto& [first, tensor] : pieces) {
      end = first == end ? end + tensor.elements() : end;
    }
    if (pieces.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          dir, average.files_.empty()
                   ? " has no state/, where the average of the weights is; a copy has it if it "
                     "was downloaded with --state"
                   : " has no average of the weights: its job kept none (train.ema)"));
    }
    if (end != parameter.logical_elements()) {
      return absl::DataLossError(
          absl::StrCat(folder, ": no file has tensor \"", name, "\" from element ", end));
    }
  }
  return average;
}

void StateAverage::Read(size_t k, int64_t first, absl::Span<float> out) const {
  const Pieces& pieces = parameters_[k];
  for (auto piece = std::prev(pieces.upper_bound(first)); !out.empty(); ++piece) {
    const int64_t begin = first - piece->first;
    const size_t count =
        std::min(out.size(), static_cast<size_t>(piece->second.elements() - begin));
    ReadElements(piece->second, begin, out.first(count));
    out.remove_prefix(count);
    first += static_cast<int64_t>(count);
  }
}

}  // namespace hearth::weights
