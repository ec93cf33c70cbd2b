#include "common/weights/average.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/weights/model_folder.h"

namespace hearth::weights {
namespace {

using Tensors = std::vector<const TensorView*>;

// The folder's tensors in the order of the first one's.
absl::StatusOr<Tensors> InOrder(const ModelFolder& folder, const Tensors& first) {
  Tensors tensors;
  for (const TensorView* wanted : first) {
    const TensorView* tensor = folder.weights->files().Find(wanted->name);
    if (tensor == nullptr || tensor->shape != wanted->shape ||
        IsFloat(tensor->dtype) != IsFloat(wanted->dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder.dir, ": tensor \"", wanted->name, "\" is ",
          tensor == nullptr ? "missing"
                            : absl::StrCat("[", absl::StrJoin(tensor->shape, ", "), "]"),
          ", the first folder has [", absl::StrJoin(wanted->shape, ", "), "]"));
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<Exported> AverageModels(Env& env,
                                       const FileVerifier& verifier,
                                       const std::vector<std::string>& dirs,
                                       const ExportOptions& options) {
  if (dirs.empty()) {
    return absl::InvalidArgumentError("no folder to average");
  }
  std::vector<std::unique_ptr<ModelFolder>> folders;
  std::vector<Tensors> tensors;
  for (const std::string& dir : dirs) {
    HEARTH_RETURN_IF_ERROR(Verify(env, verifier, dir));
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<ModelFolder> folder, OpenModelFolder(env, dir));
    folders.push_back(std::move(folder));
    HEARTH_ASSIGN_OR_RETURN(Tensors own, tensors.empty() ? folders[0]->weights->files().Tensors()
                                                         : InOrder(*folders.back(), tensors[0]));
    tensors.push_back(std::move(own));
  }
  const auto count = static_cast<double>(dirs.size());
  const auto read = [&tensors, count](size_t index, int64_t begin, absl::Span<float> out) {
    // Summed in double: the result is rounded once, however many folders there are.
    std::vector<double> sums(out.size(), 0.0);
    for (const Tensors& each : tensors) {
      ReadElements(*each[index], begin, out);
      for (size_t i = 0; i < out.size(); ++i) {
        sums[i] += static_cast<double>(out[i]);
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(sums[i] / count);
    }
  };
  return WriteHfFolder(env, *folders[0], tensors[0], read, options);
}

}  // namespace hearth::weights
