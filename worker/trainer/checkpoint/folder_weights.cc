#include "worker/trainer/checkpoint/folder_weights.h"

#include <algorithm>
#include <memory>

#include "common/base/status_macros.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/model/upload.h"

namespace hearth::trainer {

absl::StatusOr<HostWeights> ReadFolderWeights(Env& env,
                                              const std::string& dir,
                                              const ParameterStore& parameters,
                                              weights::WeightChoice choice) {
  HostWeights host(static_cast<size_t>(parameters.size()));
  std::vector<float*> weights;
  for (int i = 0; i < parameters.size(); ++i) {
    std::vector<float>& values = host[static_cast<size_t>(i)];
    values.assign(static_cast<size_t>(parameters.weight(i).numel()), 0.0F);
    weights.push_back(values.data());
  }
  HEARTH_RETURN_IF_ERROR(LoadHfWeights(env, dir, parameters.table(), weights, choice));
  return host;
}

absl::Status WriteWeights(const HostWeights& host,
                          const kernels::Exec& exec,
                          const ParameterStore& parameters) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload, Upload::New(exec));
  for (int i = 0; i < parameters.size(); ++i) {
    const float* const loaded = host[static_cast<size_t>(i)].data();
    const auto values = [loaded](int64_t first, absl::Span<float> out) {
      std::copy_n(loaded + first, out.size(), out.data());
      return absl::OkStatus();
    };
    HEARTH_RETURN_IF_ERROR(parameters.WriteParameter(exec, *upload, i, values));
  }
  return parameters.RefreshWeights(exec);
}

absl::Status LoadFolderWeights(Env& env,
                               const std::string& dir,
                               const kernels::Exec& exec,
                               const ParameterStore& parameters,
                               weights::WeightChoice choice) {
  HEARTH_ASSIGN_OR_RETURN(const HostWeights host, ReadFolderWeights(env, dir, parameters, choice));
  return WriteWeights(host, exec, parameters);
}

}  // namespace hearth::trainer
