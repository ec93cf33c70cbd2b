#include "worker/trainer/step/gradient_dump.h"

#include <vector>

#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "worker/trainer/checkpoint/hf_model.h"

namespace hearth::trainer {

absl::Status WriteGradients(const Engine& engine, const std::string& dir) {
  const ParameterStore& p = engine.parameters();
  std::vector<std::vector<float>> host(static_cast<size_t>(p.size()));
  std::vector<const float*> values;
  for (int i = 0; i < p.size(); ++i) {
    std::vector<float>& gradient = host[static_cast<size_t>(i)];
    gradient.resize(static_cast<size_t>(p.gradient(i).numel()));
    HEARTH_RETURN_IF_ERROR(p.Read(engine.exec(), p.gradient(i), gradient.data()));
    values.push_back(gradient.data());
  }
  const HfModel model = {engine.shape(), engine.options().spec.data().sequence_length(), p.table(),
                         values, TensorDType::kF32};
  return WriteHfModel(Env::Real(), dir, model).status();
}

}  // namespace hearth::trainer
